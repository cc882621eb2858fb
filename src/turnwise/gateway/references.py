"""Items of a responses request that only name what was answered before: the record has what they stand for."""

from __future__ import annotations

import re
from typing import Any

from turnwise.gateway.errors import ApiError
from turnwise.gateway.request import invalid
from turnwise.journal import Journal
from turnwise.journal.schema import unpack_json
from turnwise.types import Message

KEY = "references"
"""Where a message under way holds the ids of the items that it is made of."""

_ID = re.compile(r"(rs|msg|fc)_([0-9a-f]{8,64})(?:_(\d{1,4}))?\Z")


def add_reference(where: str, messages: list[Message], turn: Message | None, item: dict[str, Any]) -> Message:
    """Note the item's id on the assistant message under way; items of another turn begin a new one."""
    given = item.get("id")
    found = _ID.match(given) if isinstance(given, str) else None
    if found is None:
        raise invalid(f"{where}.id", f"there is no item {given!r}; send the item itself")
    if turn is not None and any(_ID.sub(r"\2", known) != found[2] for known in turn.get(KEY, [])):
        turn = None
    if turn is None:
        turn = {"role": "assistant", "content": ""}
        messages.append(turn)
    turn.setdefault(KEY, []).append(given)
    return turn


def has_references(messages: list[Message]) -> bool:
    return any(KEY in message for message in messages)


def resolve(messages: list[Message], journal: Journal, client: str) -> list[Message]:
    """The messages with what their references stand for. Raises ApiError (400) for an item this client was not sent."""
    return [_resolved(message, journal, client) if KEY in message else message for message in messages]


def _resolved(message: Message, journal: Journal, client: str) -> Message:
    out = {key: value for key, value in message.items() if key != KEY}
    for given in message[KEY]:
        kind, turn, place = _ID.match(given).groups()  # type: ignore[union-attr]  # checked when it was noted
        row = journal.turn_row(f"turn-{turn}")
        answer = None if row is None or row.answer is None or row.client != client else unpack_json(row.answer)
        part = None if answer is None or not is_kept(row) else _part(answer, kind, place)
        if part is None:
            text = f"there is no item {given!r} any more; send the item itself, and 'store': false"
            raise ApiError(400, text, param="input", code="item_not_found")
        if kind == "fc":
            out["tool_calls"] = [*out.get("tool_calls", []), part]
        else:
            key = "content" if kind == "msg" else "reasoning_content"
            out[key] = out.get(key, "") + part
    return out


def is_kept(row: Any) -> bool:
    """Whether the client let its answer be stored, as far as a later request may name it."""
    return unpack_json(row.params).get("store") is not False


def _part(answer: Message, kind: str, place: str | None) -> Any:
    if kind == "fc":
        calls = answer.get("tool_calls") or []
        return calls[int(place)] if place is not None and int(place) < len(calls) else None
    return answer.get("content" if kind == "msg" else "reasoning_content")
