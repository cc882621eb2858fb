"""Server-sent events as they came over the wire, and answers without what differs from turn to turn."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
from pydantic import TypeAdapter

ChatMessage = dict[str, Any]
"""A message in OpenAI's chat shape, as clients write it, files hold it and journals store it."""

TOOL = {
    "name": "add",
    "description": "adds numbers",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
}


def events_of(data: bytes | str) -> list[dict[str, Any]]:
    """The bodies of the events in a stream; the name of each, where it has one, must be its body's type."""
    text = data.decode() if isinstance(data, bytes) else data
    assert text.endswith("\n\n")
    assert not set(text) & {"\x85", "\u2028", "\u2029"}, (
        "clients that split at any line break of Unicode's are cut here"
    )
    bodies = []
    for block in text.removesuffix("\n\n").split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.split("\n"))
        if lines["data"] == "[DONE]":
            continue
        body = json.loads(lines["data"])
        assert lines.get("event") in (None, body.get("type"))
        bodies.append(body)
    return bodies


def post_stream(url: str, headers: dict[str, str], body: dict[str, Any]) -> list[dict[str, Any]]:
    """The raw events of a streamed answer."""
    response = httpx.post(url, headers=headers, json=body | {"stream": True}, timeout=30)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    return events_of(response.content)


def check_events(bodies: list[dict[str, Any]], union: Any) -> None:
    """Every event is one of the SDK's own types, by its `type`."""
    adapter = TypeAdapter(union)
    for body in bodies:
        assert getattr(adapter.validate_python(body), "type", body.get("type")) == body.get("type"), body


def without_ids(answer: Any) -> Any:
    """An answer as plain data, with its turn's id and its times taken out, so that two answers can be compared."""
    data = answer.model_dump(mode="json", exclude_none=True) if hasattr(answer, "model_dump") else answer
    text = re.sub(r"(turn-|resp_|msg_|call_|rs_|fc_)[0-9a-f]{20,32}", r"\1ID", json.dumps(data))
    return json.loads(re.sub(r'"(created|created_at|completed_at)": [0-9.]+', r'"\1": 0', text))


def nested_calls(*arguments: dict[str, Any]) -> str:
    """Calls of the tool as Qwen3 writes them."""
    return "\n".join(
        f"<tool_call>\n{json.dumps({'name': 'add', 'arguments': each})}\n</tool_call>" for each in arguments
    )


KINDS_OF_ANSWER = {
    "text": "día 🤖 fin  with  spaces\nand lines ",
    "reasoning": "<think>\nlet me think\nlong\n</think>\n\nfour",
    "calls": "Two of them.\n" + nested_calls({"a": 1}, {"a": 22, "note": 'q"}</tool_call>{'}),
    "all": "<think>\nhm\n</think>\n\nSo:\n" + nested_calls({"a": 3}),
    "nothing": "",
    "reasoning alone": "<think>\nhm",
    "no arguments": nested_calls({}),
}
"""What a model with Qwen3's notation may say, by what is in it."""
