"""`serve --ready-file` holds the token: nobody else may read it, not even while it is being written."""

from __future__ import annotations

import stat
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


def test_the_ready_file_is_never_readable_by_others(folder: Path, tmp_path: Path) -> None:
    done = serve(folder, tmp_path / "home")
    assert "modes ['0o600']" in done.stdout, done.stdout + done.stderr
    assert stat.S_IMODE((folder / "ready.json").stat().st_mode) == 0o600
    assert "tw-secret-token" in (folder / "ready.json").read_text()
    assert [p.name for p in folder.iterdir()] == ["ready.json"]


def test_a_file_that_somebody_put_there_is_not_written_into(folder: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_text("")
    (folder / "ready.json.part").symlink_to(theirs)
    (folder / "ready.json").symlink_to(theirs)
    serve(folder, tmp_path / "home")
    assert theirs.read_text() == ""
    assert "tw-secret-token" in (folder / "ready.json").read_text()
    assert not (folder / "ready.json").is_symlink()
