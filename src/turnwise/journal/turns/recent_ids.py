"""The token ids of recent conversations in memory, so that a request reads only its own turn, not all before it.

The journal stores what each turn added. What is kept here is the sum, which never changes once a turn is answered; it
can be dropped at any time and read again.
"""

from __future__ import annotations

import threading
from array import array
from collections import OrderedDict

MAX_IDS = 8_000_000
"""Ids kept, at 4 bytes each; the conversations that were not used for longest go first."""


class RecentIds:
    """Prompt and response ids by turn, least recently used out first. Safe to use from several threads."""

    def __init__(self, max_ids: int = MAX_IDS) -> None:
        self._max_ids = max_ids
        self._kept: OrderedDict[str, tuple[array[int], array[int]]] = OrderedDict()
        self._ids = 0
        self._lock = threading.Lock()

    def get(self, turn_id: str) -> tuple[array[int], array[int]] | None:
        """Prompt ids and response ids, or None when they are not at hand."""
        with self._lock:
            found = self._kept.get(turn_id)
            if found is not None:
                self._kept.move_to_end(turn_id)
            return found

    def put(self, turn_id: str, prompt: array[int], response: array[int]) -> None:
        with self._lock:
            if turn_id in self._kept:
                return
            self._kept[turn_id] = (prompt, response)
            self._ids += len(prompt) + len(response)
            while self._ids > self._max_ids:
                _, (old_prompt, old_response) = self._kept.popitem(last=False)
                self._ids -= len(old_prompt) + len(old_response)
