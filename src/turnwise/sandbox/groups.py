"""Control groups: how much memory, how many processes and how many cores all that runs in one sandbox may have.

Version 1 and 2 of the kernel's groups are used, each controller where it can be written. Where none can, `prlimit`
holds each process by itself; but the kernel exempts root from its limit of processes, so root needs a group for that.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from turnwise.errors import SandboxError
from turnwise.sandbox.leftovers import is_left, named
from turnwise.sandbox.limits import TRY_S, BoxLimits

GROUPS = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")
HELD_BY = {
    "memory": ("memory.limit_in_bytes", "memory.max"),
    "pids": ("pids.max",),
    "cpu": ("cpu.cfs_quota_us", "cpu.max"),
}
"""The files in which each kind's limit is written, of version 1 or 2."""
OVERHEAD = 4
"""Processes of the sandbox itself."""
WEIGHT = 50
"""Of a hundred: who is inside has less of a busy core than a process of ours that answers a person."""
PERIOD_US = 100_000
"""The kernel's own."""
_JOIN = 'while [ "$1" != -- ]; do echo 0 > "$1" || exit 125; shift; done; shift; exec "$@"'


@dataclass(slots=True)
class Group:
    """One group of each kind, together. ``folders``: where each kind's files lie; of version 2 it is one folder."""

    folders: dict[str, Path] = field(default_factory=dict)

    @property
    def holds_memory(self) -> bool:
        return "memory" in self.folders

    @property
    def holds_processes(self) -> bool:
        return "pids" in self.folders

    def joining(self) -> list[str]:
        """The words to put before a command so that it, and all that it starts, is in the group."""
        places = [str(folder / "cgroup.procs") for folder in self._all()]
        return ["/bin/sh", "-c", _JOIN, "sh", *places, "--"] if places else []

    def members(self) -> list[int] | None:
        """The ids of all processes in it, but those that are none of ours to see (0); None where nobody knows."""
        if not self.holds_processes:
            return None
        with contextlib.suppress(OSError):
            told = (self.folders["pids"] / "cgroup.procs").read_text(encoding="ascii").split()
            return [pid for each in told if (pid := int(each)) > 0]
        return None

    def killed_for_memory(self) -> int:
        """How many of its processes the kernel has ended for want of memory."""
        if not self.holds_memory:
            return 0
        for name in ("memory.oom_control", "memory.events"):
            with contextlib.suppress(OSError):
                for line in (self.folders["memory"] / name).read_text(encoding="ascii").splitlines():
                    if line.startswith("oom_kill "):
                        return int(line.split()[1])
        return 0

    def most_memory(self) -> int:
        """Bytes that were used at most; 0 where nobody counted."""
        for name in ("memory.max_usage_in_bytes", "memory.peak"):
            with contextlib.suppress(OSError, KeyError, ValueError):
                return int((self.folders["memory"] / name).read_text(encoding="ascii"))
        return 0

    def remove(self) -> None:
        """End what is still in it and take it away. Raises SandboxError where something does not end."""
        until = time.monotonic() + TRY_S
        for folder in self._all():
            while True:
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    break
                except OSError as e:
                    if time.monotonic() > until:
                        raise SandboxError(f"the control group {folder} cannot be taken away: {e}") from e
                    _kill(folder)
                    time.sleep(0.005)
                else:
                    break

    def _all(self) -> list[Path]:
        return list(dict.fromkeys(self.folders.values()))


def make_group(limits: BoxLimits) -> Group:
    """A new group with these limits. Raises SandboxError for root where nothing would hold the number of processes."""
    group, name = Group(), named()
    for kind, parent in parents().items():
        folder = parent / name
        try:
            folder.mkdir(exist_ok=folder in group.folders.values())
            group.folders[kind] = folder
            _limit(kind, folder, limits)
        except OSError:
            group.folders.pop(kind, None)
            if folder not in group.folders.values():
                with contextlib.suppress(OSError):
                    folder.rmdir()
    if os.geteuid() == 0 and not group.holds_processes:
        group.remove()
        raise SandboxError(
            f"as root a command of an agent could start processes without end: no control group can be made in "
            f"{GROUPS}; run turnwise as another user, or let it write there"
        )
    return group


def clean_groups() -> int:
    """End and take away what hosts left that live no more; says how many groups."""
    found: dict[str, Group] = {}
    for at, folders, _ in os.walk(GROUPS):  # the one that was killed may have been in another group than we are
        for name in folders:
            if is_left(name):
                found.setdefault(name, Group()).folders[at] = Path(at) / name
    for group in found.values():
        group.remove()
    return len(found)


def held_kinds() -> tuple[str, ...]:
    """What groups can hold on this machine, for people."""
    return tuple(parents())


def _limit(kind: str, folder: Path, limits: BoxLimits) -> None:
    memory, quota = str(limits.memory_mb << 20), max(1000, round(limits.cores * PERIOD_US))
    values = {
        "memory.limit_in_bytes": memory,
        "memory.max": memory,
        "pids.max": str(limits.processes + OVERHEAD),
        "cpu.cfs_quota_us": str(quota),
        "cpu.max": f"{quota} {PERIOD_US}",
    }
    settings = [(name, values[name]) for name in HELD_BY[kind]]
    known = [(folder / name, value) for name, value in settings if (folder / name).exists()]
    if not known:
        raise FileNotFoundError(f"{folder} is no control group for {kind}")
    for place, value in known:
        place.write_text(value, encoding="ascii")
    if kind == "cpu":
        weight = [("cpu.shares", WEIGHT * 1024 // 100), ("cpu.weight", WEIGHT)]
        for place, number in ((folder / name, number) for name, number in weight if (folder / name).exists()):
            place.write_text(str(number), encoding="ascii")
    # Where the kernel counts what is swapped as well, it is not to become a second memory.
    for name, value in (("memory.memsw.limit_in_bytes", memory), ("memory.swap.max", "0")):
        if kind == "memory" and (folder / name).exists():
            with contextlib.suppress(OSError):
                (folder / name).write_text(value, encoding="ascii")


@cache
def parents() -> dict[str, Path]:
    """Below which folder a group of each kind can be made: in our own group, so that its limits hold, too."""
    own: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in OWN.read_text(encoding="utf-8").splitlines():
            _, kinds, way = line.split(":", 2)
            own |= dict.fromkeys(kinds.split(",") if kinds else [""], way)
    found: dict[str, Path] = {}
    for kind in HELD_BY:
        for place in _places(kind, own):
            if _can_hold(place, kind):
                found[kind] = place
                break
    return found


def _places(kind: str, own: dict[str, str]) -> Iterator[Path]:
    first = GROUPS / kind
    yield from (first / own.get(kind, "/").lstrip("/"), first)
    for root in (GROUPS, GROUPS / "unified"):
        if (root / "cgroup.controllers").exists():
            here = root / own.get("", "/").lstrip("/")
            # A group of version 2 with processes of its own has no others below it: the next one up may.
            yield from dict.fromkeys((here, here.parent if here != root else root, root))


def _can_hold(place: Path, kind: str) -> bool:
    """Whether a group that is made there holds a kind; of version 2 this is allowed first, where it may be."""
    control = place / "cgroup.subtree_control"
    with contextlib.suppress(OSError):
        if control.exists() and kind not in control.read_text(encoding="ascii").split():
            control.write_text(f"+{kind}", encoding="ascii")
    trial = place / named()
    try:
        trial.mkdir()
    except OSError:
        return False
    held = any((trial / name).exists() for name in HELD_BY[kind])
    with contextlib.suppress(OSError):
        trial.rmdir()
    return held


def _kill(folder: Path) -> None:
    with contextlib.suppress(OSError, ValueError):
        if (folder / "cgroup.kill").exists():
            (folder / "cgroup.kill").write_text("1", encoding="ascii")
            return
        for pid in (folder / "cgroup.procs").read_text(encoding="ascii").split():
            with contextlib.suppress(OSError):
                os.kill(int(pid), signal.SIGKILL)
