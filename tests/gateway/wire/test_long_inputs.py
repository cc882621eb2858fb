"""Texts and lists that once froze the gateway, or its loop, for seconds to minutes: the time grows with their length.

The bound only tells "done" from "hangs": each of these takes less than a second, and took many or did not end.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.gateway.callers import user
from turnwise.engines.upstream.tool_names import FittingNames
from turnwise.gateway.errors import ApiError
from turnwise.gateway.lineage.history import canonical, compare_histories, hash_history, side_rule, without_side_tail
from turnwise.gateway.wire.request import check_tool_names
from turnwise.gateway.wire.responses.answer import ResponsesCodec
from turnwise.messages import from_chat, saying
from turnwise.tokens.chatml import parse_text

LIMIT_S = 8.0


@contextmanager
def in_time() -> Iterator[None]:
    started = time.process_time()
    yield
    assert time.process_time() - started < LIMIT_S


def tool(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def test_marks_of_thinking_without_an_end() -> None:
    text = "<think>" * 60_000
    with in_time():
        assert canonical(saying("assistant", text)) == f"assistant\x1f{text}"
    assert canonical(saying("assistant", "a<think>x</think>b<think>y</think> c <think>")) == (
        "assistant\x1fab c <think>"
    )


def test_marks_of_calls_without_an_end() -> None:
    text = "<tool_call>" + " " * 100_000
    with in_time():
        assert parse_text(text, with_tools=True).content == text
        assert parse_text("<tool_call>" * 60_000, with_tools=True).content == "<tool_call>" * 60_000
        parse_text("<tool_call>" + "[" * 200_000 + "</tool_call>", with_tools=True)


def test_many_items_that_are_only_named() -> None:
    named = [{"type": "item_reference", "id": "msg_0123456789abcdef"}] * 20_000
    said = [{"type": "message", "role": "assistant", "content": "hello there"}] * 20_000
    with in_time():
        for given in (named, said):
            ResponsesCodec().parse(json.dumps({"model": "turnwise", "input": [*given, user("go on")]}).encode())


def test_many_tools_of_which_two_have_one_name() -> None:
    names = [f"tool-{i}" for i in range(60_000)]
    with in_time(), pytest.raises(ApiError, match="two tools have the name 'tool-59999'"):
        check_tool_names([tool(name) for name in [*names, names[-1]]])


def test_many_names_that_an_upstream_would_take_for_one() -> None:
    names = ["x" * 70 + f".{i}" for i in range(20_000)]
    with in_time():
        fitting = FittingNames([], [tool(name) for name in names], 64)
        told = [t["function"]["name"] for t in fitting.tools([tool(name) for name in names]) or []]
    assert len(set(told)) == len(names)
    assert max(map(len, told)) == 64


def test_short_names_that_collide_keep_their_numbers() -> None:
    fitting = FittingNames([], [tool(name) for name in ("a.b", "a_b", "a b", "a:b", "a_b_3")], 64)
    told = [
        t["function"]["name"] for t in fitting.tools([tool(n) for n in ("a.b", "a_b", "a b", "a:b", "a_b_3")]) or []
    ]
    assert told == ["a_b_2", "a_b", "a_b_4", "a_b_5", "a_b_3"]


def test_a_conversation_of_very_many_messages() -> None:
    messages = [saying(("user", "assistant")[i % 2], f"{i}") for i in range(40_000)]
    messages.append(saying("user", "and?"))
    heartbeats = [saying(("user", "assistant")[i % 2], "HEARTBEAT: go on") for i in range(40_001)]
    with in_time():
        hash_history(messages)
        compare_histories(messages[:-2], messages)
        side_rule(messages, None)
        without_side_tail(heartbeats)


def test_arguments_that_are_nested_very_deep() -> None:
    for arguments in ("[" * 1_000_000, '{"a":' * 400_000, json.dumps("[" * 1_000_000)):
        call = {"function": {"name": "f", "arguments": arguments}}
        with in_time():
            canonical(from_chat({"role": "assistant", "content": "", "tool_calls": [call]}))
