"""The requests that vLLM and turnwise are both sent: one conversation in the words of each format.

The small model calls a tool of its own accord where its history is full of calls.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from tests.support.wire import TOOL
from turnwise.tokens.chatml import TOOLS_PREAMBLE

PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
LIMITS = {"chat": "max_tokens", "responses": "max_output_tokens", "messages": "max_tokens"}

TEMPLATE = """
{%- set described -%}
{%- if tools -%}
{{- PREAMBLE -}}
{%- for tool in tools -%}
{%- set f = tool.function -%}
{{- "\\n" if not loop.first -}}
{{- {"name": f.name, "description": f.description or "", "parameters": f.parameters or {}} | tojson -}}
{%- endfor -%}
{%- endif -%}
{%- endset -%}
{%- set default = "You are a helpful AI assistant named SmolLM, trained by Hugging Face" -%}
{%- for message in messages -%}
{%- if loop.first and message.role != "system" -%}
{{- "<|im_start|>system\\n" + default + ("\\n\\n" + described if described else "") + "<|im_end|>\\n" -}}
{%- endif -%}
{{- "<|im_start|>" + message.role + "\\n" + (message.content or "") -}}
{{- "\\n\\n" + described if loop.first and message.role == "system" and described -}}
{%- for call in message.tool_calls or [] -%}
{{- "\\n" if message.content or not loop.first -}}
{%- set f = call.function -%}
{{- "<tool_call>" + ({"name": f.name, "arguments": f.arguments} | tojson) + "</tool_call>" -}}
{%- endfor -%}
{{- "<|im_end|>\\n" -}}
{%- endfor -%}
{{- "<|im_start|>assistant\\n" if add_generation_prompt -}}
""".replace("PREAMBLE", json.dumps(TOOLS_PREAMBLE, ensure_ascii=False))
"""What turnwise's renderer for ChatML writes. The model's own template knows no tools."""

HELLO = [{"role": "user", "content": "Say hello in one short sentence."}]
SUMS = [(2, 3), (4, 1), (7, 8)]
SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}


def sums(kind: str, *, result_last: bool) -> list[dict[str, Any]]:
    """A conversation of calls and results; the model goes on with a call, or with what it says to the last result."""
    items: list[dict[str, Any]] = []
    for n, (a, b) in enumerate(SUMS):
        arguments, result = {"a": a, "b": b}, str(a + b)
        items.append({"role": "user", "content": f"Add {a} and {b}."})
        if kind == "chat":
            function = {"name": "add", "arguments": json.dumps(arguments)}
            call = {"id": f"c{n}", "type": "function", "function": function}
            items.append({"role": "assistant", "content": None, "tool_calls": [call]})
            items.append({"role": "tool", "tool_call_id": f"c{n}", "content": result})
        elif kind == "responses":
            call = {"type": "function_call", "call_id": f"c{n}", "name": "add", "arguments": json.dumps(arguments)}
            items += [call, {"type": "function_call_output", "call_id": f"c{n}", "output": result}]
        else:
            use = {"type": "tool_use", "id": f"c{n}", "name": "add", "input": arguments}
            items.append({"role": "assistant", "content": [use]})
            back = {"type": "tool_result", "tool_use_id": f"c{n}", "content": result}
            items.append({"role": "user", "content": [back]})
        items.append({"role": "assistant", "content": f"The sum is {result}."})
    return items[:-1] if result_last else [*items, {"role": "user", "content": "Add 5 and 6."}]


TOOLS: dict[str, list[dict[str, Any]]] = {
    "chat": [{"type": "function", "function": TOOL}],
    "responses": [{"type": "function"} | TOOL],
    "messages": [
        {"name": TOOL["name"], "description": TOOL["description"], "input_schema": TOOL["parameters"]},
    ],
}


@dataclass(frozen=True)
class Case:
    """One request. ``messages`` and ``tools`` are the same conversation in chat's words, for the prompt's ids."""

    kind: str
    name: str
    body: dict[str, Any]
    messages: list[dict[str, Any]] = field(default_factory=lambda: HELLO)
    tools: list[dict[str, Any]] | None = None
    shows: str = ""
    """A pattern in vLLM's answer without which the case is not about what its name says."""

    @property
    def id(self) -> str:
        mode = "stream" if self.body.get("stream") else "whole"
        return f"{self.kind}-{self.name}-{mode}"


def cases() -> Iterator[Case]:
    said = {"chat": "messages", "responses": "input", "messages": "messages"}
    call, result = (sums("chat", result_last=last) for last in (False, True))
    for kind in PATHS:
        text = {said[kind]: HELLO, "temperature": 0, LIMITS[kind]: 60}
        calling = text | {"tools": TOOLS[kind], said[kind]: sums(kind, result_last=False)}
        telling = text | {"tools": TOOLS[kind], said[kind]: sums(kind, result_last=True)}
        yield Case(kind, "text", text)
        yield Case(kind, "cut", text | {LIMITS[kind]: 6}, shows='"(length|max_output_tokens|max_tokens)"')
        yield Case(kind, "call", calling, call, TOOLS["chat"], shows='"(tool_calls|function_call|tool_use)"')
        yield Case(kind, "cut call", calling | {LIMITS[kind]: 22}, call, TOOLS["chat"])
        yield Case(kind, "result", telling, result, TOOLS["chat"])
    system = [{"role": "system", "content": "Be brief."}, *HELLO]
    schema = {"type": "json_schema", "name": "city", "schema": SCHEMA}

    chat = {"messages": HELLO, "temperature": 0, "max_tokens": 60}
    stop = {"stop": ["Roar"]}
    yield Case("chat", "stop", chat | stop, shows='"stop_reason": ?"Roar"')
    yield Case("chat", "logprobs", chat | {"logprobs": True})
    yield Case("chat", "cut logprobs", chat | {"logprobs": True, "max_tokens": 6}, shows='"length"')
    yield Case("chat", "stop logprobs", chat | stop | {"logprobs": True}, shows='"stop_reason": ?"Roar"')
    yield Case("chat", "system", chat | {"messages": system}, system)
    yield Case("chat", "seed", chat | {"temperature": 0.8, "seed": 7})
    json_schema = {"name": "city", "schema": SCHEMA}
    yield Case("chat", "schema", chat | {"response_format": {"type": "json_schema", "json_schema": json_schema}})

    responses = {"input": HELLO[0]["content"], "temperature": 0, "max_output_tokens": 60}
    logprobs = {"include": ["message.output_text.logprobs"]}
    yield Case("responses", "system", responses | {"instructions": "Be brief."}, system)
    yield Case("responses", "logprobs", responses | logprobs)
    yield Case("responses", "cut logprobs", responses | logprobs | {"max_output_tokens": 6})
    yield Case("responses", "schema", responses | {"text": {"format": schema}})

    messages = {"messages": HELLO, "temperature": 0, "max_tokens": 60}
    yield Case("messages", "stop", messages | {"stop_sequences": ["Roar"]}, shows='"stop_sequence": ?"Roar"')
    yield Case("messages", "system", messages | {"system": "Be brief."}, system)
    yield Case(
        "messages", "schema", messages | {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}
    )


def streamed(case: Case) -> Iterator[Case]:
    """The case as a stream; with chat, a second time with its usage."""
    yield replace(case, body=case.body | {"stream": True})
    if case.kind == "chat" and case.name in ("text", "cut", "call"):
        options = {"stream": True, "stream_options": {"include_usage": True}}
        yield replace(case, name=f"{case.name} and usage", body=case.body | options)


CASES = [each for case in cases() for each in (case, *streamed(case))]


TOO_LONG = [{"role": "user", "content": "word " * 3000}]
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
ANTHROPIC_IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
MISSING = object()
BAD: dict[str, list[dict[str, Any]]] = {
    "chat": [
        {"messages": MISSING},
        {"messages": []},
        {"messages": "hi"},
        {"messages": [{"role": "user", "content": 5}]},
        {"messages": [{"role": "user", "content": [IMAGE]}]},
        {"messages": TOO_LONG},
        {"model": "nobody"},
        {"temperature": 9},
        {"temperature": -1},
        {"top_p": 2},
        {"max_tokens": 0},
        {"max_tokens": "x"},
        {"n": 0},
        {"stop": 5},
        {"seed": "x"},
        {"logprobs": "perhaps"},
        {"stream_options": {"include_usage": True}},
        {"tools": "x"},
        {"tools": [{"type": "function"}]},
        {"tool_choice": "perhaps"},
        {"response_format": {"type": "sonnet"}},
    ],
    "responses": [
        {"input": MISSING},
        {"input": []},
        {"input": 5},
        {"input": TOO_LONG},
        {"model": "nobody"},
        {"temperature": 9},
        {"top_p": 2},
        {"max_output_tokens": 0},
        {"tools": "x"},
        {"tool_choice": "perhaps"},
        {"text": {"format": {"type": "sonnet"}}},
        {"include": ["everything"]},
        {"top_logprobs": "x"},
    ],
    "messages": [
        {"messages": MISSING},
        {"messages": []},
        {"messages": [{"role": "robot", "content": "x"}]},
        {"messages": [{"role": "user", "content": 5}]},
        {"messages": [{"role": "user", "content": [ANTHROPIC_IMAGE]}]},
        {"messages": TOO_LONG},
        {"model": "nobody"},
        {"max_tokens": MISSING},
        {"max_tokens": 0},
        {"temperature": 9},
        {"top_p": 2},
        {"system": 5},
        {"tools": "x"},
        {"tools": [{"name": "x"}]},
        {"tool_choice": {"type": "perhaps"}},
        {"stop_sequences": "x"},
    ],
}
"""What is wrong with a request that both refuse alike, by format."""

OTHERWISE: list[tuple[str, dict[str, Any], int, int, str]] = [
    ("chat", {"messages": [{"role": "robot", "content": "x"}]}, 200, 400, "the SDK knows no such role"),
    ("chat", {"messages": [*HELLO, {"role": "tool", "content": "x"}]}, 200, 400, "a result names its call"),
    ("chat", {"n": 2}, 200, 400, "a turn has one answer; refused by name"),
    ("chat", {"logprobs": True, "top_logprobs": 2}, 200, 400, "only the sampled tokens' are known; refused by name"),
    ("chat", {"max_tokens": 100_000}, 400, 200, "agents ask for what another model could write; it gets what fits"),
    ("responses", {"max_output_tokens": 100_000}, 400, 200, "as with chat"),
    ("responses", {"previous_response_id": "resp_nobody"}, 404, 400, "OpenAI's: 400, previous_response_not_found"),
    ("messages", {"max_tokens": 100_000}, 400, 200, "as with chat"),
]
"""Requests with their statuses from vLLM and from turnwise, and why turnwise's is another."""


def spoilt(kind: str, change: dict[str, Any]) -> dict[str, Any]:
    """A short request, with a change."""
    body = {"input" if kind == "responses" else "messages": HELLO, LIMITS[kind]: 3} | change
    return {key: value for key, value in body.items() if value is not MISSING}
