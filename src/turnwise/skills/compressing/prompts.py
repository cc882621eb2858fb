"""What the gateway asks: the shorter system prompt that stands in for a long one, where there is one by now.

A request never waits. A system prompt that comes a second time is wanted shorter, by a note in the journal; until
somebody has made it, and it was checked, the original goes. Safe from any thread.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

from turnwise.config import Config
from turnwise.errors import TurnwiseError
from turnwise.journal import Journal
from turnwise.skills.retrieval import BYTES_PER_TOKEN
from turnwise.types import Message, Text

log = logging.getLogger(__name__)

LOOK_S = 1.0
"""How often the journal is asked for a prompt that was not ready."""
MOST_BYTES = 100_000
"""Longer system prompts are left as they are."""
REMEMBERED = 256


@dataclass(frozen=True, slots=True)
class ShortPrompt:
    """``id``: of the recorded compression, which the turn is stamped with."""

    id: int
    text: str

    def put_into(self, messages: list[Message]) -> list[Message]:
        """The messages with the shorter system prompt."""
        return [Message("system", (Text(self.text),), messages[0].name), *messages[1:]]


@dataclass(slots=True)
class _Known:
    """One system prompt: how often it came, when it is looked for again, and the shorter one."""

    times: int = 0
    look_at: float = float("-inf")
    short: ShortPrompt | None = None


class ShortPrompts:
    """The shorter system prompts of one home."""

    def __init__(self, config: Config, journal: Journal, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._on = config.compress.url is not None
        self._least = config.compress.from_tokens * BYTES_PER_TOKEN
        self._records = journal.compressions
        self._monotonic = monotonic
        self._seen: OrderedDict[str, _Known] = OrderedDict()
        self._lock = Lock()

    def of(
        self, messages: Sequence[Message], tools: list[dict[str, Any]] | None = None, session_id: str | None = None
    ) -> ShortPrompt | None:
        """The shorter prompt for a conversation. A `session_id` is of a turn: its prompt may be wanted shorter."""
        text = self._long(messages)
        if text is None:
            return None
        digest = hashlib.sha256(text.encode()).hexdigest()
        with self._lock:
            known = self._seen.setdefault(digest, _Known())
            self._seen.move_to_end(digest)
            while len(self._seen) > REMEMBERED:
                self._seen.popitem(last=False)
            known.times += session_id is not None
            if known.short is not None or self._monotonic() < known.look_at:
                return known.short
            known.look_at = self._monotonic() + LOOK_S
        try:
            found = self._records.find(digest)
            if found is None and known.times > 1 and session_id is not None:
                names = [str(tool["function"]["name"]) for tool in tools or ()]
                self._records.want_soon(digest, text, names, session_id)
            elif found is not None and found.shorter is not None:
                known.short = ShortPrompt(found.id, found.shorter)
        except TurnwiseError as e:  # the original goes
            log.debug("shorter system prompts cannot be looked up: %s", e)
        return known.short

    def _long(self, messages: Sequence[Message]) -> str | None:
        """The system prompt, where it is long enough to be worth it, and words alone."""
        first = messages[0] if self._on and messages else None
        if first is None or first.role != "system" or len(first.parts) != 1 or not isinstance(first.parts[0], Text):
            return None
        text = first.parts[0].text
        return text if self._least <= len(text.encode(errors="replace")) <= MOST_BYTES else None
