"""A small disk in memory that a test fills and empties. It needs Linux and the right to mount, or is skipped."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SIZE = "24m"


@dataclass
class SmallDisk:
    path: Path

    def fill(self) -> None:
        """Take all the room that is left."""
        with (self.path / "ballast").open("ab", buffering=0) as file:
            for size in (1 << 20, 1 << 12, 1):
                try:
                    while file.write(b"\0" * size):
                        pass
                except OSError:
                    continue

    def empty(self) -> None:
        (self.path / "ballast").unlink()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("mounting a small disk needs Linux and root")
    path = tmp_path / "disk"
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=0700", "tmpfs", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip(f"no small disk can be mounted here: {mounted.stderr.strip()}")
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)  # at once, whoever still has a file of it open
