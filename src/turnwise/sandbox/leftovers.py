"""Whose a folder, a mount or a control group is, and taking away what is nobody's any more.

Each of them has its owner's process in its name. So whoever comes after a process that was killed knows what it left,
on the same boot and in the same container, and nothing of a living one is touched.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from functools import cache
from pathlib import Path

import psutil

_MARK = "turnwise-"


def named() -> str:
    """A new name that tells of this process."""
    return f"{_MARK}{_owner(os.getpid())}-{uuid.uuid4().hex[:12]}"


def is_left(name: str) -> bool:
    """Whether something with this name was made by a process that lives no more."""
    if not name.startswith(_MARK):
        return False
    machine, _, rest = name.removeprefix(_MARK).partition("-")
    pid, _, _ = rest.partition("-")
    if not pid.isdecimal():
        return False
    if machine != _machine():  # of an earlier boot, or of another container that is not ours to judge
        return not machine.startswith(_boot()) and machine.endswith(f"n{_processes()}")
    start, _, _ = rest.removeprefix(f"{pid}-").partition("-")
    return _started(int(pid)) != start


def mounts_below(folder: Path) -> list[Path]:
    """What is mounted below a folder, the innermost first."""
    at = str(folder.absolute())
    found: list[Path] = []
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        mounted = line.split(" ")[4]
        for code, sign in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
            mounted = mounted.replace(code, sign)
        if mounted == at or mounted.startswith(f"{at}/"):
            found.append(Path(mounted))
    return found[::-1]


def end_left(place: Path) -> int:
    """End the sandboxes that lie in a folder whose owner lives no more; says how many. Where groups held them, they are
    gone already."""
    ended = 0
    for process in psutil.process_iter(["cmdline", "name"]):
        if process.info["name"] == "bwrap" and place.name in (process.info["cmdline"] or ()):
            with contextlib.suppress(psutil.Error):
                process.kill()
                ended += 1
    return ended


def _owner(pid: int) -> str:
    return f"{_machine()}-{pid}-{_started(pid)}"


def _started(pid: int) -> str:
    """When a process began, in the kernel's ticks since the boot; empty where there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _machine() -> str:
    return f"{_boot()}n{_processes()}"


@cache
def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8")[:8]


@cache
def _processes() -> int:
    """The namespace in which process ids mean something."""
    return Path("/proc/self/ns/pid").stat().st_ino
