"""The three wire formats as a plain client speaks them: a conversation to a body, bytes to the text of an answer."""

from __future__ import annotations

import json
from typing import Any

Message = dict[str, Any]

PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
TOOL: dict[str, Any] = {
    "name": "look_up",
    "description": "looks up a word",
    "parameters": {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
}


def body_of(wire: str, messages: list[Message], limit: int, streamed: bool, tools: bool) -> dict[str, Any]:
    """A request. Messages are plain ones: user and assistant with ``content``; a ``call`` is one with its result."""
    if wire == "responses":
        items = [item for message in messages for item in _items(message)]
        body: dict[str, Any] = {"input": items, "max_output_tokens": limit}
        tool: dict[str, Any] = {"type": "function", **TOOL}
    elif wire == "messages":
        body = {"messages": [m for message in messages for m in _blocks(message)], "max_tokens": limit}
        tool = {"name": TOOL["name"], "description": TOOL["description"], "input_schema": TOOL["parameters"]}
    else:
        body = {"messages": [m for message in messages for m in _chat(message)], "max_tokens": limit}
        tool = {"type": "function", "function": TOOL}
    return {"model": "turnwise", "stream": streamed} | body | ({"tools": [tool]} if tools else {})


def _chat(message: Message) -> list[Message]:
    if "call" not in message:
        return [message]
    function = {"name": TOOL["name"], "arguments": json.dumps({"word": message["call"]})}
    call = {"id": "call_1", "type": "function", "function": function}
    result = {"role": "tool", "tool_call_id": "call_1", "content": message["content"]}
    return [{"role": "assistant", "content": None, "tool_calls": [call]}, result]


def _items(message: Message) -> list[Message]:
    if "call" not in message:
        return [message]
    call = {"type": "function_call", "call_id": "call_1", "name": TOOL["name"]}
    return [
        call | {"arguments": json.dumps({"word": message["call"]})},
        {"type": "function_call_output", "call_id": "call_1", "output": message["content"]},
    ]


def _blocks(message: Message) -> list[Message]:
    if "call" not in message:
        return [message]
    use = {"type": "tool_use", "id": "call_1", "name": TOOL["name"], "input": {"word": message["call"]}}
    result = {"type": "tool_result", "tool_use_id": "call_1", "content": message["content"]}
    return [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]


def text_of(wire: str, answer: dict[str, Any]) -> str:
    """The text of a whole answer."""
    if wire == "chat":
        return answer["choices"][0]["message"]["content"] or ""
    if wire == "messages":
        return "".join(block.get("text", "") for block in answer["content"] if block["type"] == "text")
    parts = [part for item in answer["output"] if item["type"] == "message" for part in item["content"]]
    return "".join(part.get("text", "") for part in parts)


class Stream:
    """Puts an answer together from the lines of a stream. ``whole`` once its last event was seen."""

    def __init__(self, wire: str) -> None:
        self._wire = wire
        self.text = ""
        self.whole = False
        self.events = 0
        self.error: str | None = None

    def line(self, line: str) -> None:
        if not line.startswith("data: "):
            return
        self.events += 1
        if line == "data: [DONE]":
            self.whole = self.error is None
            return
        event = json.loads(line.removeprefix("data: "))
        kind = event.get("type")
        if "error" in event or kind in ("error", "response.failed"):
            self.error = json.dumps(event.get("error") or event)[:300]
        elif self._wire == "chat":
            for choice in event["choices"]:
                self.text += choice["delta"].get("content") or ""
        elif kind == "response.output_text.delta":
            self.text += event["delta"]
        elif kind == "content_block_delta":
            self.text += event["delta"].get("text", "")
        elif kind in ("response.completed", "response.incomplete", "message_stop"):
            self.whole = self.error is None
