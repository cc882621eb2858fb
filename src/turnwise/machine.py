"""What this process may use of the machine: memory and processor cores, of a container those that it was given."""

from __future__ import annotations

import math
import os
from pathlib import Path

import psutil

CGROUP = Path("/sys/fs/cgroup")
"""Where a container sees its own limits; those of control groups of version 1 stand in folders below it."""


def memory_gb() -> float:
    """Memory in GB."""
    limits = (_number(CGROUP / "memory.max"), _number(CGROUP / "memory/memory.limit_in_bytes"))
    return min([psutil.virtual_memory().total, *(limit for limit in limits if limit is not None)]) / 1e9


def cores() -> int:
    """Processor cores, at least one: those that we are tied to, and no more than the container's share of time.

    A thread more than that does not compute beside the others, it holds them up.
    """
    tied = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min(tied, _share_of_time())))


def _share_of_time() -> float:
    """Cores whose time the container may use; infinite where there is no limit."""
    with_period = _words(CGROUP / "cpu.max")
    quota, period = with_period if len(with_period) == 2 else ("max", "")
    if not quota.isdigit():
        folder = CGROUP / "cpu"
        quota, period = (" ".join(_words(folder / f"cpu.cfs_{what}_us")) for what in ("quota", "period"))
    if not (quota.isdigit() and period.isdigit() and int(period)):
        return math.inf
    return int(quota) / int(period)


def _number(file: Path) -> int | None:
    words = _words(file)
    return int(words[0]) if len(words) == 1 and words[0].isdigit() else None


def _words(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return []
