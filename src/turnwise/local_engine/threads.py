"""How many threads compute a step that decodes: the number that was fastest lately, tried again from time to time.

A step is hundreds of small products, and after each the threads wait for each other. On a quiet machine two are 1.2
times as fast as one; beside busy programs one waits for the other, and two are three times as slow
(docs/decisions/0002-local-engine.md). Which of it holds is seen by trying. Pure, but for what it remembers.
"""

from __future__ import annotations

from collections import deque
from statistics import median

TRIAL = 3
"""Steps of one kind by which two numbers of threads are compared."""
EVERY, SELDOM = 64, 1024
"""Steps between two trials: at first, and at most, for each that changed nothing doubles them."""
FASTER = 0.95
"""Share of the time before that another number has to need."""
SLOWED = 1.5
"""From so many times the time that was usual on, another number is tried at once: the machine became busy."""


class ThreadChoice:
    """``count`` is what the next such step should take; ``took`` is told of each step that only decodes."""

    def __init__(self, most: int) -> None:
        self._counts = sorted({1, max(1, most // 2), most}, reverse=True)
        self._now = 0
        self._tried: int | None = None
        self._recent: deque[float] = deque(maxlen=TRIAL)
        self._trial: list[float] = []
        self._rows = 0
        self._usual: tuple[int, float] | None = None
        self._left = 0
        self._pause = EVERY
        self._turn = 0

    @property
    def count(self) -> int:
        return self._counts[self._now if self._tried is None else self._tried]

    def took(self, rows: int, seconds: float) -> None:
        """A step that added a token to each of ``rows`` answers, with ``count`` threads."""
        if len(self._counts) == 1:
            return
        if rows != self._rows:  # more rows take longer whatever the threads do
            self._rows, self._tried = rows, None
            self._recent.clear()
            self._trial.clear()
        (self._recent if self._tried is None else self._trial).append(seconds)
        self._left -= 1
        if len(self._trial) == TRIAL:
            self._decide()
        elif self._tried is None and len(self._recent) == TRIAL and (self._left <= 0 or self._slowed()):
            self._turn += 1
            others = [i for i in range(len(self._counts)) if i != self._now]
            self._tried = others[self._turn % len(others)]

    def _slowed(self) -> bool:
        usual = self._usual
        return usual is not None and usual[0] == self._rows and median(self._recent) > SLOWED * usual[1]

    def _decide(self) -> None:
        before, now = median(self._recent), median(self._trial)
        if now < FASTER * before:
            assert self._tried is not None
            self._now, self._pause = self._tried, EVERY
        else:
            self._pause = min(2 * self._pause, SELDOM)
        self._usual, self._left, self._tried = (self._rows, min(before, now)), self._pause, None
        self._recent.clear()
        self._trial.clear()
