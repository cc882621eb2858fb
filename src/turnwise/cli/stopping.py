"""Ctrl-C for commands that take long: at the first one they come to a good end, the second one ends the program."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from turnwise.cli.options import err
from turnwise.errors import TurnwiseError

BOTH = (signal.SIGINT, signal.SIGTERM)


def _ended() -> None:
    raise TurnwiseError("ended in the middle")


@contextmanager
def until_stopped(
    said: str, at_once: Callable[[], None] = _ended, signals: Sequence[signal.Signals] = BOTH
) -> Iterator[threading.Event]:
    """An event that Ctrl-C sets, saying ``said``; ``at_once``: what the second one does. Signals belong to the main
    thread: in any other the event is never set."""
    stop = threading.Event()

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            return at_once()
        stop.set()
        err.print(f"{said}; once more ends it at once")
        return None

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {one: signal.signal(one, on_signal) for one in signals}
    try:
        yield stop
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
