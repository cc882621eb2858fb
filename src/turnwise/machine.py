"""What this process may use of the machine: memory and processor cores, in a control group those that it was given."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

import psutil

GROUPS = Path("/sys/fs/cgroup")
"""Where the limits of control groups stand: of version 2 below it, of version 1 in a folder for each kind."""
OWN = Path("/proc/self/cgroup")
"""Names our own groups, below that; in a container its root may be ours."""


def memory_gb() -> float:
    """Memory in GB."""
    limits = [
        int(words[0])
        for kind, name in (("", "memory.max"), ("memory", "memory.limit_in_bytes"))
        for words in _read(kind, name)
        if len(words) == 1 and words[0].isdigit()
    ]
    return min([psutil.virtual_memory().total, *limits]) / 1e9


def cores() -> int:
    """Processor cores, at least one: those that we are tied to, and no more than our share of their time, rounded up.

    Threads beyond that do not compute beside the others, they hold them up.
    """
    tied = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min([tied, *_shares_of_time()])))


def _shares_of_time() -> list[float]:
    """Cores whose time each of our groups may use, where it has a limit."""
    both = [*_read("", "cpu.max")]
    both += [a + b for a, b in zip(_read("cpu", "cpu.cfs_quota_us"), _read("cpu", "cpu.cfs_period_us"), strict=True)]
    return [
        int(words[0]) / int(words[1])
        for words in both
        if len(words) == 2 and all(word.isdigit() for word in words) and int(words[1])
    ]


def _read(kind: str, name: str) -> Iterator[list[str]]:
    """The words of a file in our group and in each above it; none of one that is not there. ``kind``: of version 1."""
    group = GROUPS / kind / _own(kind).lstrip("/")
    for folder in (group, *group.parents):
        if folder.is_relative_to(GROUPS):
            yield _words(folder / name)


def _own(kind: str) -> str:
    """The path of our group of a kind; "" stands for version 2."""
    try:
        lines = OWN.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "/"
    named = (line.split(":", 2) for line in lines if line.count(":") >= 2)
    return next((path for _, kinds, path in named if kind in kinds.split(",")), "/")


def _words(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return []
