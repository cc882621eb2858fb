"""The processes of browsers that this process has begun, and their memory."""

from __future__ import annotations

import psutil


def browser_processes() -> list[psutil.Process]:
    """Those of Chromium below us."""
    found: list[psutil.Process] = []
    for process in psutil.Process().children(recursive=True):
        try:
            if "chrom" in process.name():
                found.append(process)
        except psutil.Error:  # it has just ended
            continue
    return found


def browser_memory() -> int:
    """Of all of them in bytes; what is shared counts by its share (PSS)."""
    found = 0
    for process in browser_processes():
        try:
            found += process.memory_full_info().pss
        except psutil.Error:  # it has just ended
            continue
    return found
