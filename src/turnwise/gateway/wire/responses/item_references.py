"""Items of a responses request that only name what was answered before: the record has what they stand for."""

from __future__ import annotations

from typing import Any

from turnwise.gateway.errors import ApiError
from turnwise.journal import Journal, StoredTurn
from turnwise.patterns import pattern
from turnwise.types import FinishReason, Message

KEY = "references"
"""Where a message under way that names items has its fragments, in order: ids, and messages of what came whole."""

_ID = pattern(r"\A(rs|msg|fc)_([0-9a-f]{8,64})(?:_(\d{1,4}))?\Z")
_FIELDS = {"rs": "reasoning_content", "msg": "content"}


def add_reference(messages: list[Message], turn: Message | None, given: Any) -> Message:
    """Note an item's id on the assistant message under way; items of another turn begin a new one."""
    found = _ID.match(given) if isinstance(given, str) else None
    if found is None:
        raise _lost(given)
    if turn is not None and any(_turn_of(id) != found[2] for id in turn.get(KEY, []) if isinstance(id, str)):
        turn = None
    if turn is None:
        turn = {"role": "assistant", "content": ""}
        messages.append(turn)
    if KEY not in turn:
        turn[KEY] = [dict(turn)]
    turn[KEY].append(given)
    return turn


def fragment(turn: Message) -> Message:
    """Where an item that comes whole belongs in the message under way."""
    if KEY not in turn:
        return turn
    if isinstance(turn[KEY][-1], str):
        turn[KEY].append({"role": "assistant", "content": ""})
    return turn[KEY][-1]


def has_references(messages: list[Message]) -> bool:
    return any(KEY in message for message in messages)


def resolve(messages: list[Message], journal: Journal, client: str) -> list[Message]:
    """The messages with what their references stand for. Raises ApiError (400) for an item this client was not sent."""
    return [_resolved(message, journal, client) if KEY in message else message for message in messages]


def can_be_named(row: StoredTurn, client: str) -> bool:
    """Whether a recorded turn has an answer that this client was given whole, and let be stored."""
    if row.finish_reason in (None, FinishReason.ABORT, FinishReason.ERROR):
        return False
    return row.client == client and row.params.get("store") is not False


def _resolved(message: Message, journal: Journal, client: str) -> Message:
    out: Message = {"role": "assistant", "content": ""}
    seen: set[tuple[str, str]] = set()
    for part in message[KEY]:
        if isinstance(part, str):
            kind = part.partition("_")[0]
            again = kind in _FIELDS and (kind, _turn_of(part)) in seen  # the text of an answer is recorded as one
            seen.add((kind, _turn_of(part)))
            part = {} if again else _named(part, journal, client)
        for field in _FIELDS.values():
            if part.get(field):
                out[field] = out.get(field, "") + part[field]
        if part.get("tool_calls"):
            out["tool_calls"] = [*out.get("tool_calls", []), *part["tool_calls"]]
    return out


def _named(given: str, journal: Journal, client: str) -> Message:
    """The part of an answer that an item's id stands for, as a message."""
    kind, turn, place = _ID.match(given).groups()  # type: ignore[union-attr]  # checked when it was noted
    row = journal.lookups.turn(f"turn-{turn}")
    if row is None or not can_be_named(row, client):
        raise _lost(given)
    answer = row.answer or {}
    if kind in _FIELDS:
        return {_FIELDS[kind]: answer.get(_FIELDS[kind])}
    calls = answer.get("tool_calls") or []
    if place is None or int(place) >= len(calls):
        raise _lost(given)
    return {"tool_calls": [calls[int(place)]]}


def _turn_of(given: str) -> str:
    return _ID.sub(r"\2", given)


def _lost(given: Any) -> ApiError:
    text = f"there is no item {given!r}, or none any more; send the item itself, and 'store': false"
    return ApiError(400, text, param="input", code="item_not_found")
