"""Names of tools in the form that an upstream takes, and back: pure, tested by value."""

from __future__ import annotations

import re
from typing import Any

import pytest

from turnwise.engines.upstream.client import ChatParams, ToolCallPiece, UpstreamEvent
from turnwise.engines.upstream.tool_names import FittingNames
from turnwise.messages import answer_of, calls_of, saying
from turnwise.types import Message, ToolCall

LONGEST = 16


def tool(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def said(name: str) -> list[Message]:
    return [answer_of("", calls=[ToolCall(name, "", "c")]), saying("user", "go on")]


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["f", "get-it_2"], ["f", "get-it_2"]),
        (["a.b", "a:b", "a_b"], ["a_b_2", "a_b_3", "a_b"]),
        (["x" * LONGEST], ["x" * LONGEST]),
        (["x" * 20, "x" * 21, "x" * LONGEST], ["x" * 14 + "_2", "x" * 14 + "_3", "x" * LONGEST]),
        (["öffnen", "日本"], ["_ffnen", "__"]),
    ],
)
def test_every_name_has_a_form_of_its_own_and_is_found_again(names: list[str], told: list[str]) -> None:
    tools = [tool(name) for name in names]
    fitting = FittingNames([], tools, LONGEST)
    assert [t["function"]["name"] for t in fitting.tools(tools) or []] == told
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,16}", name) for name in told)
    pieces = [ToolCallPiece(i, f"c{i}", name) for i, name in enumerate(told)]
    restored = fitting.restored(UpstreamEvent(tool_calls=pieces))
    assert [piece.name for piece in restored.tool_calls] == names


def test_a_call_in_the_history_and_a_choice_have_the_form_of_their_tool() -> None:
    tools = [tool("a.b")]
    fitting = FittingNames(said("a.b"), tools, LONGEST)
    told, last = fitting.messages(said("a.b"))
    assert calls_of(told) == [ToolCall("a_b", "", "c")]
    assert last == said("a.b")[1]
    assert fitting.params(ChatParams(tool_choice=tool("a.b"))).tool_choice == tool("a_b")
    assert fitting.params(ChatParams(tool_choice="required")).tool_choice == "required"
    assert tools == [tool("a.b")], "what was given stays as it was"


def test_a_call_of_a_tool_that_is_gone_is_told_too() -> None:
    fitting = FittingNames(said("no tool"), None, LONGEST)
    assert calls_of(fitting.messages(said("no tool"))[0]) == [ToolCall("no_tool", "", "c")]
