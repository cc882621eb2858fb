"""Items of a responses request that only name what was answered before: the record has what they stand for.

What a client says of one answer comes in items. An answer under way takes them in their order; where some of them are
only named, it stays apart (`ModelRequest.named_items`) until the journal was asked.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from turnwise.gateway.errors import ApiError
from turnwise.gateway.wire.request import NamedItems
from turnwise.journal import Journal, Turn
from turnwise.messages import answer_of, calls_of, text_of, thinking_in
from turnwise.patterns import pattern
from turnwise.types import UNANSWERED, Message, ToolCall

_ID = pattern(r"\A(rs|msg|fc)_([0-9a-f]{8,64})(?:_(\d{1,4}))?\Z")


@dataclass(slots=True)
class AnswerUnderWay:
    """An assistant's message as its items come. ``named`` are the ids of items, and what came whole before each."""

    thinking: list[str] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    named: list[str | Message] = field(default_factory=list)
    _turn: str | None = None  # whose items are named

    def name(self, given: str) -> None:
        """Take an item that is only named."""
        self._put_by()
        self._turn = _turn_of(given)
        self.named.append(given)

    def goes_on_with(self, given: str) -> bool:
        """Whether a named item may be of this answer: it is where no item of another turn is."""
        return self._turn in (None, _turn_of(given))

    def message(self) -> Message:
        """What came whole; empty where there are named items."""
        if self.named:
            self._put_by()
        return self._whole()

    def _whole(self) -> Message:
        return answer_of("".join(self.text), "".join(self.thinking), self.calls)

    def _put_by(self) -> None:
        whole = self._whole()
        if whole.parts:
            self.named.append(whole)
        self.thinking, self.text, self.calls = [], [], []


def item_id(given: Any) -> str:
    """The id of an item that is only named. Raises ApiError (400) where it cannot be one of ours."""
    if not isinstance(given, str) or not _ID.match(given):
        raise _lost(given)
    return given


def with_named_items(messages: list[Message], named: NamedItems, journal: Journal, client: str) -> list[Message]:
    """The messages with what items stand for. Raises ApiError (400) for an item this client was not sent."""
    return [_whole(named[i], journal, client) if i in named else message for i, message in enumerate(messages)]


def can_be_named(row: Turn | None, client: str) -> bool:
    """Whether a recorded turn has an answer that this client was given whole, and let be stored."""
    if row is None or row.finish_reason is None or row.finish_reason in UNANSWERED:
        return False
    return row.client == client and row.params.get("store") is not False


def _whole(named: list[str | Message], journal: Journal, client: str) -> Message:
    thinking, text = "", ""
    calls: list[ToolCall] = []
    seen: set[tuple[str, str]] = set()
    for part in named:
        if isinstance(part, str):
            kind = part.partition("_")[0]
            again = kind != "fc" and (kind, _turn_of(part)) in seen  # the text of an answer is recorded as one
            seen.add((kind, _turn_of(part)))
            part = answer_of("") if again else _recorded(part, journal, client)
        thinking += thinking_in(part)
        text += text_of(part)
        calls += calls_of(part)
    return answer_of(text, thinking, calls)


def _recorded(given: str, journal: Journal, client: str) -> Message:
    """The part of an answer that an item's id stands for, as a message."""
    kind, turn, place = _ID.match(given).groups()  # type: ignore[union-attr]  # checked when it was noted
    row = journal.lookups.turn(f"turn-{turn}")
    if row is None or not can_be_named(row, client):
        raise _lost(given)
    answer = row.answer or answer_of("")
    if kind == "rs":
        return answer_of("", thinking_in(answer))
    if kind == "msg":
        return answer_of(text_of(answer))
    calls = calls_of(answer)
    if place is None or int(place) >= len(calls):
        raise _lost(given)
    return answer_of("", calls=[calls[int(place)]])


def _turn_of(given: str) -> str:
    return _ID.sub(r"\2", given)


def _lost(given: Any) -> ApiError:
    text = f"there is no item {given!r}, or none any more; send the item itself, and 'store': false"
    return ApiError(400, text, param="input", code="item_not_found")
