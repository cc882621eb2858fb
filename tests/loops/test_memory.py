"""Freed memory goes back to the system when it is asked to: seen from outside, in a process of its own."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

from turnwise.loops import memory

CODE = """
import psutil
from turnwise.loops.memory import give_back
rss = lambda: psutil.Process().memory_info().rss / 2**20
blocks = [b"x" * 100_000 for _ in range(3000)]  # below the size from which a block is one of the system's own
held = blocks[-1]  # it lies behind the others, which stay with the process for it
del blocks
before = rss()
give_back()
print(before - rss())
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="the C library cannot be asked for it")
def test_what_was_freed_goes_back() -> None:
    found = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=60, check=True)
    assert float(found.stdout) > 200, "of 286 MiB"


def test_where_the_c_library_cannot_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda _: object())
    memory.give_back()
