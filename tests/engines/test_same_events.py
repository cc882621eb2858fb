"""The comparison that the differential test rests on: what it passes over, and what it must not."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from openai.types.chat import ChatCompletionChunk

from tests.support.same_events import Event, chat_steps, differences, known_to, merged, plain


def chunk(id: str, delta: dict[str, Any], finish_reason: str | None = None, **more: Any) -> Event:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": None} | more
    return {"id": id, "object": "chat.completion.chunk", "created": len(id), "model": id, "choices": [choice]}


def stream(id: str, *texts: str) -> list[Event]:
    pieces = [chunk(id, {"content": text}) for text in texts]
    return [chunk(id, {"role": "assistant", "content": ""}), *pieces, chunk(id, {}, "stop")]


def compared(theirs: list[Event], ours: list[Event]) -> set[str]:
    def steps(side: list[Event]) -> list[Event]:
        return merged(chat_steps(plain([known_to(ChatCompletionChunk, body) for body in side])))

    return differences(steps(theirs), steps(ours))


def test_ids_times_vendors_fields_and_the_cutting_of_text_are_passed_over() -> None:
    theirs = stream("a", "Hel", "lo ", "you")
    theirs[-1] = chunk("a", {"content": "."}, "stop", stop_reason=None) | {"system_fingerprint": "x"}
    assert compared(theirs, stream("another", "Hello", " you", ".")) == set()


@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        (lambda events: events[1]["choices"][0]["delta"].update(content="Hullo"), 'content: "Hello" | "Hullo"'),
        (lambda events: events[-1]["choices"][0].update(finish_reason="length"), 'finish_reason: "stop" | "length"'),
        (lambda events: events[0]["choices"][0]["delta"].update(role="tool"), 'delta.role: "assistant" | "tool"'),
        (lambda events: events[-1]["choices"][0].update(index=1), "index: 0 | 1"),
        (lambda events: events.pop(0), 'events: ["role"] | []'),
        (lambda events: events.pop(), 'events: ["finish"] | []'),
        (
            lambda events: events[0]["choices"][0].pop("logprobs"),
            'choice: ["delta", "finish_reason", "index", "logprobs"] | ["delta", "finish_reason", "index"]',
        ),
    ],
)
def test_a_difference_is_found(spoil: Callable[[list[Event]], Any], found: str) -> None:
    theirs = stream("a", "Hello")
    ours = copy.deepcopy(theirs)
    spoil(ours)
    assert compared(theirs, ours) == {found}


def test_an_id_that_changes_in_the_middle_is_found() -> None:
    theirs, ours = ([{"type": "added", "id": "a"}, {"type": "done", "item_id": last}] for last in ("a", "b"))
    assert differences(plain(theirs), plain(ours)) == {'item_id: "#0" | "#1"'}
