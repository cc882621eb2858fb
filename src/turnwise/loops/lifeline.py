"""The line between a loop and its supervisor: signs of life one way, and the news of the supervisor's end the other.

It is a pair of connected sockets that the loop inherits. A loop calls `beat` from the thread that does its work, so
that a stuck one falls silent, and ends when the line does. Neither journal nor clock of the day is part of it. A
process without a supervisor has no line; `beat` then does nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import os
import signal
import socket
import threading
import time

LIFELINE = "TURNWISE_LIFELINE"
"""Environment variable in which a supervisor gives a loop the number of its end of the line."""
SHOW_STACKS = signal.SIGUSR1
"""Makes a loop print where each of its threads stands: asked of a hung one before it is ended."""
BEAT_S = 1.0
_SOONEST_S = 0.5

_line: socket.socket | None = None
_owner = 0
_beaten = float("-inf")


def attach() -> None:
    """Take up the line, where the supervisor left one: from now on this process ends when its supervisor does."""
    global _line, _owner
    given = os.environ.pop(LIFELINE, None)  # taken out: a child of ours is none of the supervisor's
    if given is None:
        return
    line = socket.socket(fileno=int(given))
    line.set_inheritable(False)
    _line, _owner = line, os.getpid()
    faulthandler.register(
        SHOW_STACKS, all_threads=True
    )  # in C: it works while a pattern or a model holds Python's lock
    threading.Thread(target=_end_with, args=(line,), name="lifeline", daemon=True).start()


def beat() -> None:
    """Say that the calling thread gets on. Costs next to nothing, never waits, and sends two signs a second at most."""
    global _beaten
    line, now = _line, time.monotonic()
    if line is None or now - _beaten < _SOONEST_S or os.getpid() != _owner:  # a forked child does not speak for us
        return
    _beaten = now
    with contextlib.suppress(OSError):  # a full line: the supervisor is the one that hangs. A cut one: we end anyway
        line.send(b".", socket.MSG_DONTWAIT)


async def beating() -> None:
    """Beat from the running event loop until cancelled: for loops whose work is done there."""
    while True:
        beat()
        await asyncio.sleep(BEAT_S)


def _end_with(line: socket.socket) -> None:
    """Nothing is ever sent this way: what ends the wait is the end of the supervisor, however it came."""
    with contextlib.suppress(OSError):
        while line.recv(64):
            pass
    os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does it on Linux; every loop may be killed at any moment
