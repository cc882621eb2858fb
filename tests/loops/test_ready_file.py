"""`serve --ready-file` holds the token: nobody else may read it, not even while it is being written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SERVE = """
import sys
from pathlib import Path

modes = []

def look(event, args):  # the mode of each file of the folder at every opening, chmod and rename
    if event in ("open", "os.chmod", "os.rename"):
        modes.extend(oct(p.stat().st_mode & 0o777) for p in Path(sys.argv[1]).iterdir())

sys.addaudithook(look)

from turnwise.loops import supervisor

async def run(self, on_ready, stop):
    await on_ready(supervisor.Address("http://127.0.0.1:1", "tw-secret-token"))
    ready = Path(sys.argv[1]) / "ready.json"
    print("mode", oct(ready.lstat().st_mode), "files", [p.name for p in Path(sys.argv[1]).iterdir()], ready.read_text())
    if "another" in sys.argv[1]:
        ready.write_text('{"pid": 1}')

supervisor.Supervisor.run = run
from turnwise.cli.main import main
sys.argv = ["turnwise", "serve", "--home", sys.argv[2], "--ready-file", sys.argv[1] + "/ready.json"]
try:
    main()
finally:
    print("modes", sorted(set(modes)))
"""


def serve(folder: Path, home: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", f"import os; os.umask(0o022)\n{SERVE}".replace("sys.argv[1]", repr(str(folder)))]
    command[-1] = command[-1].replace("sys.argv[2]", repr(str(home)))
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "run"
    made.mkdir()
    return made


def test_the_ready_file_is_never_readable_by_others_and_goes_at_the_end(folder: Path, tmp_path: Path) -> None:
    done = serve(folder, tmp_path / "home")
    assert "modes ['0o600']" in done.stdout, done.stdout + done.stderr
    assert "mode 0o100600 files ['ready.json'] {" in done.stdout
    assert "tw-secret-token" in done.stdout
    assert list(folder.iterdir()) == []


def test_a_file_that_somebody_put_there_is_not_written_into(folder: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_text("")
    (folder / "ready.json.part").symlink_to(theirs)
    (folder / "ready.json").symlink_to(theirs)
    done = serve(folder, tmp_path / "home")
    assert theirs.read_text() == ""
    assert "mode 0o100600 files" in done.stdout, "no link any more"
    assert "tw-secret-token" in done.stdout


def test_the_ready_file_of_another_server_stays(tmp_path: Path) -> None:
    folder = tmp_path / "another"
    folder.mkdir()
    serve(folder, tmp_path / "home")
    assert (folder / "ready.json").read_text() == '{"pid": 1}'
