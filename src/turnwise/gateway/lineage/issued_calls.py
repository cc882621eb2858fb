"""The turn that a history names by the ids of its tool calls. Pure functions.

The id of a call is made from its turn's (`wire.request.call_id`), and many clients that rewrite an answer still send
the id back: with the call, with its result, or in the text that they make of the call. An id is believed only where the
turn was answered to the same client with a call of that number and name: it names a turn that the history must show.
"""

from __future__ import annotations

import json
from typing import Any

from turnwise.messages import calls_of, text_of
from turnwise.patterns import anchored, pattern
from turnwise.types import Message, ToolCall

MOST_NAMED = 8
"""Turns that one answer is looked up under. Ours has one; a client may have put several answers into one message."""

_ID = anchored(r"call_([0-9a-f]{20})_(\d{1,4})\Z")
_IN_TEXT = pattern(r"\bcall_[0-9a-f]{20}_\d{1,4}\b")

Calls = dict[str, ToolCall | None]
"""What a client sent back of our calls, by id. None stands for a call that it made a text of."""


def issued(answer: Message) -> Calls:
    """The calls of an answer whose ids may be ours. A text counts where the answer has no calls: it may be one."""
    calls = calls_of(answer)
    if calls:
        return {call.id: call for call in calls if _ID.match(call.id)}
    text = text_of(answer)
    return dict.fromkeys(_IN_TEXT.findall(text)) if "call_" in text else {}


def beginnings(calls: Calls) -> tuple[str, ...]:
    """How the ids of the turns begin that issued these calls; the last ones named where there are many."""
    found = (_ID.match(id) for id in calls)
    return tuple(dict.fromkeys(f"turn-{match[1]}" for match in found if match))[-MOST_NAMED:]


def called(turn_id: str, answer: Message, calls: Calls, text: str) -> bool:
    """Whether a turn's answer made one of these calls, and none of them another way."""
    made = calls_of(answer)
    said = [(int(match[2]), call) for id, call in calls.items() if (match := _ID.match(id)) and match[1] in turn_id]
    return bool(said) and all(number < len(made) and _is_same(made[number], call, text) for number, call in said)


def _is_same(made: ToolCall, sent: ToolCall | None, text: str) -> bool:
    """Whether a call is the one that was sampled. Clients fill in arguments that it left out; one that they changed is
    an action of their own, and what it led to is no reaction to ours.
    """
    if sent is None:
        return made.name in text
    if sent.name != made.name:
        return False
    ours, theirs = _read(made.arguments), _read(sent.arguments)
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return all(key in theirs and theirs[key] == value for key, value in ours.items())
    return ours is None or ours == theirs


def _read(arguments: str) -> Any:
    """None for what was cut off: a client may close it as it likes."""
    try:
        return json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return None


def as_one_answer(messages: list[Message], at: int, turn_id: str) -> list[Message]:
    """The history with the answer at `at` in one message and all its results behind it, where a client gave every call
    of it a message of its own with the result after it.
    """
    begin = i = at
    while i > 0 and (messages[i - 1].role == "tool" or _is_of(messages[i - 1], turn_id)):
        i -= 1
        begin = i if messages[i].role == "assistant" else begin
    return [*messages[:begin], messages[at], *(m for m in messages[begin:] if m.role != "assistant")]


def _is_of(message: Message, turn_id: str) -> bool:
    return message.role == "assistant" and any(turn_id.startswith(start) for start in beginnings(issued(message)))
