"""Answers that are given although the disk has no room to record them (`journal.when_full = "serve"`).

They teach nothing and are nowhere but at their client. Each is counted, its client is told by a header, and the log
says it once when it begins and once when it is over.
"""

from __future__ import annotations

import logging
from typing import Literal

log = logging.getLogger(__name__)

HEADER = "x-turnwise-recorded"
"""Says "no" on an answer that was not recorded. A stream's headers leave before its end: a lost end shows in none."""


class Unrecorded:
    """How many turns were served and not recorded since the gateway's start."""

    def __init__(self, when_full: Literal["refuse", "serve"] = "refuse") -> None:
        self.serve = when_full == "serve"
        self.count = 0
        self._full = False

    def note(self, turn_id: str, error: Exception) -> None:
        self.count += 1
        if not self._full:
            log.error("turn %s and later ones are answered but not recorded, until there is room: %s", turn_id, error)
        self._full = True

    def room_again(self) -> None:
        """A turn was recorded."""
        if self._full:
            log.warning("there is room again and turns are recorded; %d were not since the start", self.count)
        self._full = False
