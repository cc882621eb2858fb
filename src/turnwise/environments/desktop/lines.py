"""Reads a line from a pipe whose other end is not trusted: with a limit on time and on size."""

from __future__ import annotations

import contextlib
import os
import select
import time

MOST_OF_A_LINE = 4 << 20
"""Bytes."""


def line_from(descriptor: int, seconds: float) -> bytes:
    """The next line; empty where none comes in time, or one that is too long."""
    until, parts, size = time.monotonic() + seconds, [], 0
    with contextlib.suppress(OSError):
        while size < MOST_OF_A_LINE and select.select([descriptor], [], [], max(0.0, until - time.monotonic()))[0]:
            part = os.read(descriptor, 64 << 10)
            parts.append(part)
            size += len(part)
            if part.endswith(b"\n"):
                return b"".join(parts).strip()
            if not part:
                break
    return b""
