"""A disk of a soak's own, which can be made full and free again: a tmpfs, whose size is what changes.

Only root on Linux may mount one. Whatever happens, it is unmounted at the end.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

SIZE_MB = 4096
"""Taken from memory only as far as it is used."""
_LIMIT_S = 20


class Disk:
    """A mounted tmpfs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fill(self) -> bool:
        """Leave no room beyond what is used. False when what is written meanwhile is always faster."""
        for _ in range(10):
            info = os.statvfs(self.folder)
            used_kb = (info.f_blocks - info.f_bfree) * info.f_frsize // 1024
            if _run("mount", "-o", f"remount,size={used_kb + 16}k", str(self.folder)):
                return True
        return False

    def free(self) -> bool:
        return _run("mount", "-o", f"remount,size={SIZE_MB}m", str(self.folder))

    def used_mb(self) -> float:
        info = os.statvfs(self.folder)
        return (info.f_blocks - info.f_bfree) * info.f_frsize / 1e6


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Disk | None]:
    """Mount a disk at the new folder; None where that is not possible. The folder is removed with it."""
    folder.mkdir(parents=True)
    disk = _mounted(folder)
    if disk is None:
        yield None
        return

    def unmount() -> None:
        if folder.is_mount() and not _run("umount", str(folder)):
            _run("umount", "--lazy", str(folder))  # something still has a file open there

    atexit.register(unmount)
    try:
        yield disk
    finally:
        unmount()
        atexit.unregister(unmount)


def _mounted(folder: Path) -> Disk | None:
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return None
    options = f"size={SIZE_MB}m,mode=0700,nosuid,nodev"
    return Disk(folder) if _run("mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)) else None


def _run(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=_LIMIT_S).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
