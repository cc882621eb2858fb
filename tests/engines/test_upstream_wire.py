"""What is written to an upstream and read from it, in both of the APIs: pure translations, tested by value."""

from __future__ import annotations

import json
from typing import Any

import pytest

from turnwise.engines.base import SamplingSettings
from turnwise.engines.upstream.anthropic_api import AnthropicWire
from turnwise.engines.upstream.client import ChatParams, ToolCallPiece, UpstreamEvent, UpstreamUsage
from turnwise.engines.upstream.openai_api import OpenAIWire
from turnwise.errors import EngineError
from turnwise.messages import history_from_chat

TOOL = {"type": "function", "function": {"name": "f", "description": "does f", "parameters": {"type": "object"}}}
CALLS = [
    {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}},
    {"id": "c2", "type": "function", "function": {"name": "f", "arguments": "{broken"}},
]
GIVEN: list[dict[str, Any]] = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "look"},
    {"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": CALLS, "stop_string": "x"},
    {"role": "tool", "tool_call_id": "c1", "content": "one"},
    {"role": "tool", "tool_call_id": "c2", "content": ""},
    {"role": "user", "content": [{"type": "text", "text": "go on"}]},
]
CONVERSATION = history_from_chat(GIVEN)


def read(wire: Any, events: list[dict[str, Any]]) -> list[UpstreamEvent]:
    return [found for event in events if (found := wire.read(event)) is not None]


def test_openai_gets_the_messages_as_they_are_without_our_own_fields() -> None:
    body = OpenAIWire().body(CONVERSATION, [TOOL], ChatParams(stop=("a",), tool_choice="required"), "m")
    assert body["messages"][2] == {k: v for k, v in GIVEN[2].items() if k != "stop_string"}
    assert (body["model"], body["stream"], body["stop"], body["tool_choice"]) == ("m", True, ["a"], "required")
    assert body["tools"] == [TOOL]


def test_openai_is_not_told_of_tool_choices_without_tools_and_keeps_the_clients_word_for_the_limit() -> None:
    params = ChatParams(max_tokens=5, max_tokens_key="max_completion_tokens", tool_choice="auto")
    body = OpenAIWire().body(CONVERSATION[:2], None, params, "m")
    assert body.keys() == {"model", "messages", "stream", "stream_options", "max_completion_tokens"}


def test_openai_tool_calls_and_reasoning_come_in_pieces() -> None:
    deltas = [
        {"reasoning_content": "let me "},
        {"reasoning": "see"},
        {"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "f", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"a"'}}, {"index": 1, "id": "c2"}]},
        {"content": None},
    ]
    events: list[dict[str, Any]] = [{"choices": [{"delta": delta}]} for delta in deltas]
    events.append({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]})
    found = read(OpenAIWire(), events)
    assert "".join(event.reasoning for event in found) == "let me see"
    assert [piece for event in found for piece in event.tool_calls] == [
        ToolCallPiece(0, "c1", "f"),
        ToolCallPiece(0, None, None, '{"a"'),
        ToolCallPiece(1, "c2"),
    ]
    assert found[-1].finish_reason == "tool_calls"


def call(arguments: str, **fields: Any) -> dict[str, Any]:
    name = fields.pop("name", None)
    return fields | {"function": {"arguments": arguments} | ({"name": name} if name else {})}


@pytest.mark.parametrize(
    ("chunks", "places"),
    [
        ([[call("{}", index=0, id="a", name="f")], [call("{}", index=0, id="b", name="g")]], [0, 1]),
        ([[call("{}", index=0, id="a", name="f"), call("{}", index=0, id="b", name="g")]], [0, 1]),
        ([[call("{}", id="a", name="f")], [call("{}", id="b", name="g")]], [0, 1]),
        ([[call("{}", index=0, name="f")], [call("{}", index=0, name="f")]], [0, 1]),
        (
            [[call("", index=0, id="a", name="f")], [call("", index=0, id="b", name="g")], [call("{}", index=0)]],
            [0, 1, 1],
        ),
        ([[call("{}", index=0, id="a", name="f")], [call("", index=0, id="b")], [call("{}", index=1)]], [0, 0, 1]),
        (
            [[call('{"a"', index=0, name="f")], [call(": 1}", index=0, name="f")], [call("", index=0, name="f")]],
            [0] * 3,
        ),
        ([[call('{"a"', index=0, id="1", name="f")], [call(": 1}", index=0, id="2", name="f")]], [0, 0]),
        ([[call("{}", index=0, id="1", name="f")], [call("", index=0, id="2", name="f")]], [0, 0]),
        ([[call("", index=0, id="1", name="f")], [call("", index=0, id="2", name="f")]], [0, 1]),
        (
            [
                [call("{}", index=0, id="a", name="f")],
                [call("{", index=0, id="b", name="g")],
                [call("", index=0, id="a")],
            ],
            [0, 1, 0],
        ),
        ([[call('{"a"', index=0, id="a", name="f")], [call(": 1}", index=0, id="a", name="f")]], [0, 0]),
        ([[call("{", index=0, name="f")], [call("}", index=0, id="a", name="f")]], [0, 0]),
        ([[call("{", index=0, id="a", name="f")], [call("}", index=0, id="of the chunk")]], [0, 0]),
        (
            [[call("{}", index=0, id="x", name="f")], [call("{}", index=1, id="x", name="f")], [call("", index=0)]],
            [0, 1, 0],
        ),
    ],
)
def test_openai_calls_are_told_apart_by_more_than_their_index(chunks: list[list[Any]], places: list[int]) -> None:
    found = read(OpenAIWire(), [{"choices": [{"delta": {"tool_calls": chunk}}]} for chunk in chunks])
    assert [piece.index for event in found for piece in event.tool_calls] == places


def test_anthropic_gets_turns_of_blocks() -> None:
    body = AnthropicWire().body(CONVERSATION, [TOOL], ChatParams(stop=("a",), max_tokens=9), "m")
    assert body["system"] == "Be kind."
    assert (body["max_tokens"], body["stop_sequences"]) == (9, ["a"])
    assert body["tools"] == [{"name": "f", "description": "does f", "input_schema": {"type": "object"}}]
    assert [turn["role"] for turn in body["messages"]] == ["user", "assistant", "user"]
    uses = body["messages"][1]["content"]
    assert [use["input"] for use in uses] == [{"a": 1}, {"invalid_arguments": "{broken"}]
    assert [block["type"] for block in body["messages"][2]["content"]] == ["tool_result", "tool_result", "text"]
    assert "hm" not in json.dumps(body)


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        (ChatParams(), None),
        (ChatParams(tool_choice="auto"), {"type": "auto"}),
        (ChatParams(tool_choice="none"), {"type": "none"}),
        (ChatParams(tool_choice="required"), {"type": "any"}),
        (ChatParams(tool_choice={"type": "function", "function": {"name": "f"}}), {"type": "tool", "name": "f"}),
        (ChatParams(parallel_tool_calls=False), {"type": "auto", "disable_parallel_tool_use": True}),
        (ChatParams(parallel_tool_calls=False, tool_choice="none"), {"type": "none"}),
    ],
)
def test_anthropic_tool_choices(params: ChatParams, expected: dict[str, Any] | None) -> None:
    assert AnthropicWire().body(CONVERSATION, [TOOL], params, "m").get("tool_choice") == expected


@pytest.mark.parametrize(
    ("messages", "params", "named"),
    [
        (CONVERSATION, ChatParams(sampling=SamplingSettings(seed=1)), "seed"),
        (CONVERSATION, ChatParams(response_format={"type": "json_schema"}), "response_format"),
        (CONVERSATION, ChatParams(reasoning_effort="minimal"), "reasoning_effort"),
        (CONVERSATION, ChatParams(verbosity="low"), "verbosity"),
    ],
)
def test_what_anthropic_has_no_word_for_is_refused_by_name(messages: Any, params: ChatParams, named: str) -> None:
    with pytest.raises(EngineError, match=named) as caught:
        AnthropicWire().body(messages, None, params, "m")
    assert caught.value.status == 400


@pytest.mark.parametrize("effort", ["low", "medium", "high", "xhigh", "max"])
def test_anthropic_is_told_the_effort_and_which_tools_are_strict(effort: str) -> None:
    strict = {"type": "function", "function": TOOL["function"] | {"name": "g", "strict": True}}
    body = AnthropicWire().body(CONVERSATION, [TOOL, strict], ChatParams(reasoning_effort=effort), "m")
    assert body["output_config"] == {"effort": effort}
    assert [tool.get("strict") for tool in body["tools"]] == [None, True]


def test_openai_is_told_the_verbosity() -> None:
    body = OpenAIWire().body(CONVERSATION[:2], None, ChatParams(verbosity="low"), "m")
    assert body["verbosity"] == "low"


def test_anthropic_events_become_pieces() -> None:
    def block(index: int, **fields: Any) -> dict[str, Any]:
        return {"type": "content_block_start", "index": index, "content_block": fields}

    def delta(index: int, **fields: Any) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": index, "delta": fields}

    found = read(
        AnthropicWire(),
        [
            {"type": "message_start", "message": {"usage": {"input_tokens": 3, "cache_read_input_tokens": 5}}},
            {"type": "ping"},
            block(0, type="thinking", thinking=""),
            delta(0, type="thinking_delta", thinking="hm"),
            delta(0, type="signature_delta", signature="s"),
            {"type": "content_block_stop", "index": 0},
            block(1, type="text", text=""),
            delta(1, type="text_delta", text="Hel"),
            delta(1, type="text_delta", text="lo"),
            block(2, type="tool_use", id="t1", name="f", input={}),
            delta(2, type="input_json_delta", partial_json=""),
            delta(2, type="input_json_delta", partial_json='{"a": 1}'),
            {"type": "content_block_stop", "index": 2},
            block(3, type="tool_use", id="t2", name="g", input={}),
            {"type": "content_block_stop", "index": 3},
            {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 7}},
            {"type": "message_stop"},
        ],
    )
    assert "".join(event.reasoning for event in found) == "hm"
    assert "".join(event.text for event in found) == "Hello"
    assert [piece for event in found for piece in event.tool_calls] == [
        ToolCallPiece(0, "t1", "f"),
        ToolCallPiece(0, arguments='{"a": 1}'),
        ToolCallPiece(1, "t2", "g"),
        ToolCallPiece(1, arguments="{}"),
    ]
    assert (found[-1].finish_reason, found[-1].usage) == ("tool_calls", UpstreamUsage(8, 7, 5))


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "content_filter"),
        ("pause_turn", "stop"),
    ],
)
def test_anthropic_stop_reasons(reason: str, expected: str) -> None:
    event = {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": "x"}, "usage": {}}
    (found,) = read(AnthropicWire(), [event])
    assert (found.finish_reason, found.stop_string) == (expected, "x")
