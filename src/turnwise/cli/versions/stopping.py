"""Ctrl-C for commands that train: the first one is asked for, the second one ends the program."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from turnwise.cli.options import err
from turnwise.errors import TurnwiseError


@contextmanager
def until_stopped(said: str) -> Iterator[threading.Event]:
    """An event that Ctrl-C sets, saying ``said``. Signals belong to the main thread: in any other it is never set."""
    stop = threading.Event()

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            raise TurnwiseError("ended in the middle")
        stop.set()
        err.print(f"{said}; once more ends it at once")

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {one: signal.signal(one, on_signal) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
