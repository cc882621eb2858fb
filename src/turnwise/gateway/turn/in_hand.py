"""Which turns this gateway has in hand: from before they are recorded until their end is, whatever any clock says.

Only a turn that nobody has in hand can have lost its end. Upkeep asks for that while the journal lets nobody else
write, and a turn's end is durable before it leaves the hand: what is held is never closed under its answer.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable


class InHand:
    """Turns by id, each as often as somebody holds it. Read from other threads; written by the event loop alone."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._held: Counter[str] = Counter()
        self._monotonic = monotonic
        self._missed: dict[str, float] = {}  # turns without an end that nobody holds, and since when

    def take(self, turn_id: str) -> None:
        self._held[turn_id] += 1

    def let_go(self, turn_id: str) -> None:
        self._held[turn_id] -= 1
        if self._held[turn_id] <= 0:
            del self._held[turn_id]

    def lost_for(self, seconds: float) -> Callable[[str], bool]:
        """Whether a turn without an end has been in nobody's hand for this long; to be asked of all there are."""
        now, before = self._monotonic(), self._missed
        self._missed = {}

        def lost(turn_id: str) -> bool:
            if turn_id in self._held:
                return False
            since = self._missed.setdefault(turn_id, before.get(turn_id, now))
            return now - since >= seconds

        return lost
