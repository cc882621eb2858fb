"""Control groups, and what is taken away after a process that was killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnwise.errors import SandboxError
from turnwise.sandbox import groups as groups_module
from turnwise.sandbox.bubblewrap import check_machine
from turnwise.sandbox.choice import clean_up
from turnwise.sandbox.folder import GuestFolder
from turnwise.sandbox.groups import GROUPS, make_group, parents
from turnwise.sandbox.guest import BubblewrapLodging
from turnwise.sandbox.leftovers import is_left, mounts_below, named
from turnwise.sandbox.limits import BoxLimits

LIMITS = BoxLimits(memory_mb=256, processes=24, cores=0.5)


@pytest.fixture
def fresh() -> Iterator[None]:
    parents.cache_clear()
    yield
    parents.cache_clear()


def test_a_group_holds_its_limits_and_goes_with_what_lives_in_it() -> None:
    try:
        group = make_group(LIMITS)
    except SandboxError as e:
        pytest.skip(str(e))
    if not group.folders:
        pytest.skip("no control group can be made here")
    command = [*group.joining(), "/bin/sh", "-c", "echo in; exec sleep 60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as inside:
        assert inside.stdout is not None and inside.stdout.readline() == b"in\n"
        for folder in group.folders.values():
            assert is_left(folder.name) is False
        assert group.members() == [inside.pid], "and no other process of the machine"
        told = {
            path.name: path.read_text().strip() for folder in group.folders.values() for path in folder.glob("*.max")
        }
        assert told.get("pids.max", "28") == "28"
        group.remove()
        assert inside.wait(20) == -9
    assert not any(folder.exists() for folder in group.folders.values())
    assert group.members() is None, "nobody knows any more"
    group.remove()


@pytest.mark.usefixtures("fresh")
def test_groups_of_version_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that looks as version 2 does; the kernel here has no controllers for it, so nothing is held."""
    root, own = tmp_path / "groups", tmp_path / "own"
    (root / "user" / "ours").mkdir(parents=True)
    own.write_text("0::/user/ours\n")
    (root / "cgroup.controllers").write_text("cpu memory pids")
    for folder in (root, root / "user", root / "user" / "ours"):
        (folder / "cgroup.subtree_control").write_text("")
    monkeypatch.setattr(groups_module, "GROUPS", root)
    monkeypatch.setattr(groups_module, "OWN", own)
    files = ("memory.max", "memory.swap.max", "pids.max", "cpu.max", "cpu.weight")

    class Kernel:
        """Puts a kind's files into each folder that is made, as the kernel does."""

        def __init__(self) -> None:
            self.mkdir, self.rmdir = Path.mkdir, Path.rmdir

        def make(self, folder: Path, *given: object, **more: object) -> None:
            is_new = not folder.exists()
            self.mkdir(folder, *given, **more)  # pyright: ignore[reportArgumentType]
            for name in files if is_new else ():
                (folder / name).write_text("max")

        def unmake(self, folder: Path) -> None:
            for name in files:
                (folder / name).unlink(missing_ok=True)
            self.rmdir(folder)

    kernel = Kernel()
    monkeypatch.setattr(Path, "mkdir", lambda folder, *given, **more: kernel.make(folder, *given, **more))
    monkeypatch.setattr(Path, "rmdir", lambda folder: kernel.unmake(folder))
    group = make_group(LIMITS)
    folder = group.folders["memory"]
    assert set(group.folders.values()) == {folder} and folder.parent == root / "user" / "ours"
    assert {name: (folder / name).read_text() for name in files} == {
        "memory.max": str(256 << 20),
        "memory.swap.max": "0",
        "pids.max": "28",
        "cpu.max": "50000 100000",
        "cpu.weight": "50",
    }
    (folder / "memory.events").write_text("low 0\nhigh 0\nmax 7\noom 2\noom_kill 3\n")
    (folder / "memory.peak").write_text("4096\n")
    assert group.killed_for_memory() == 3 and group.most_memory() == 4096
    (folder / "memory.events").unlink()
    (folder / "memory.peak").unlink()
    group.remove()
    assert not folder.exists()


@pytest.mark.parametrize(
    "name", ["turnwise", "turnwise-", "turnwise-x", "turnwise-x-1-2-3", "other", "turnwise-a-b-c-d"]
)
def test_what_has_another_name_is_nobodys_to_take_away(name: str) -> None:
    assert not is_left(name)


def test_a_name_tells_of_its_process() -> None:
    code = "from turnwise.sandbox.leftovers import named; print(named())"
    dead = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    ).stdout.strip()
    assert is_left(dead) and not is_left(named())
    machine, pid, start, end = dead.removeprefix("turnwise-").split("-")
    assert not is_left(f"turnwise-{machine}-{os.getpid()}-{named().split('-')[3]}-{end}")
    assert is_left(f"turnwise-{machine}-{os.getpid()}-{int(start) + 1}-{end}"), "the process with its number is another"
    boot, space = machine.split("n")
    assert is_left(f"turnwise-00000000n{space}-{pid}-{start}-{end}"), "it is of an earlier boot"
    assert not is_left(f"turnwise-{boot}n1-{pid}-{start}-{end}"), "in another container its number is another's"


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.sandbox.test_groups import *
from turnwise.sandbox.shell import Shell
folder = Path(sys.argv[1])
folder.mkdir()
shell = Shell(BubblewrapLodging(GuestFolder(folder), LIMITS), LIMITS)
shell.run("setsid sleep 31.44 & echo x > kept")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_is_taken_away(tmp_path: Path) -> None:
    try:
        check_machine()
    except SandboxError as e:
        pytest.skip(str(e))
    command = [sys.executable, "-c", KILLED, str(tmp_path / "box")]
    with subprocess.Popen(command, cwd=Path(__file__).parents[2]) as killed:
        assert killed.wait(60) == -9
    mine = BubblewrapLodging(GuestFolder(tmp_path / "box"), LIMITS)
    assert len(list(tmp_path.iterdir())) == 3, "the folder, what the killed one left, and ours"
    assert clean_up(tmp_path) >= 1
    assert len(list(tmp_path.iterdir())) == 2, "ours stays"
    mine.close()
    assert list(tmp_path.iterdir()) == [tmp_path / "box"] and mounts_below(tmp_path) == []
    assert list(GROUPS.rglob(f"turnwise-*-{killed.pid}-*")) == []
    assert subprocess.run(["pgrep", "-f", "sleep 31.44"], capture_output=True, timeout=20).stdout == b""
