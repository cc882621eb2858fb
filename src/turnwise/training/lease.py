"""Keeps the lease of a batch while one pass over a long text takes longer than the lease lasts."""

from __future__ import annotations

import threading
import time
from types import TracebackType

from turnwise.errors import JournalError, LeaseLost
from turnwise.journal.journal import Journal
from turnwise.loops.watching import TRAINER
from turnwise.training.step import Tick
from turnwise.types import Batch


class KeptLease:
    """While it is entered, a thread of its own renews the lease of ``batch`` four times in each ``lease_s``.

    A trainer says with every tick that it gets on, but one pass over thousands of tokens takes a small machine more
    than a minute. ``longest_s``: without a tick for that long, which is when a supervisor ends the trainer, the lease
    is let go. A lost lease is told by the trainer's own next renewal. Leave it before the batch is given back.
    """

    def __init__(self, journal: Journal, batch: Batch, lease_s: float, longest_s: float = TRAINER.silent_s) -> None:
        self._journal, self._batch, self._lease_s, self._longest_s = journal, batch, lease_s, longest_s
        self._ticked = time.monotonic()
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="keeps the lease", daemon=True)

    def __enter__(self) -> KeptLease:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left.set()
        self._thread.join()

    def told_by(self, tick: Tick) -> Tick:
        """The same tick, by which this sees that the trainer gets on."""

        def told(phase: str, done: int, total: int) -> None:
            tick(phase, done, total)
            self._ticked = time.monotonic()

        return told

    def _renew(self) -> None:
        while not self._left.wait(self._lease_s / 4):
            if time.monotonic() - self._ticked > self._longest_s:
                continue
            try:
                self._journal.batches.renew(self._batch, self._lease_s)
            except LeaseLost:
                return
            except JournalError:  # a full disk, a lock: the next try may find it gone
                continue
