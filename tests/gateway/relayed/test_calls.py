"""Tool calls of upstreams that tell them apart in ways of their own, as each format's clients see them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.relayed.test_tools import asked_with
from tests.gateway.relayed.test_upstream import Fronted, in_front_of
from tests.support.raw_http import sse

CALLS = [("f", {"a": 1}), ("f", {"a": 2})]


def chunks(*calls: dict[str, Any]) -> list[Any]:
    """A stream with each call whole, in a chunk of its own."""
    return sse(
        *({"choices": [{"delta": {"tool_calls": [call]}}]} for call in calls),
        {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]},
    )


def of_index(number: int, **place: int) -> dict[str, Any]:
    return place | {"id": f"call_{number}", "function": {"name": "f", "arguments": json.dumps({"a": number})}}


async def calls_of(fronted: Fronted, path: str, stream: bool, **fields: Any) -> list[tuple[str, Any]]:
    """The calls in the answer: name and arguments."""
    answered = await fronted.ask(path, stream=stream, **asked_with(path, **fields))
    assert answered.status_code == 200, answered.text
    if stream:
        return streamed(path, [json.loads(line[6:]) for line in answered.text.splitlines() if line[:7] == "data: {"])
    body = answered.json()
    if path == "chat/completions":
        functions = [call["function"] for call in body["choices"][0]["message"]["tool_calls"]]
        return [(function["name"], json.loads(function["arguments"])) for function in functions]
    if path == "responses":
        items = [item for item in body["output"] if item["type"] == "function_call"]
        return [(item["name"], json.loads(item["arguments"])) for item in items]
    return [(block["name"], block["input"]) for block in body["content"] if block["type"] == "tool_use"]


def streamed(path: str, events: list[Any]) -> list[tuple[str, Any]]:
    names: dict[int, str] = {}
    texts: dict[int, str] = {}
    for event in events:
        if path == "chat/completions":
            for piece in (event["choices"] or [{"delta": {}}])[0]["delta"].get("tool_calls", []):
                names.setdefault(piece["index"], piece["function"].get("name"))
                texts[piece["index"]] = texts.get(piece["index"], "") + piece["function"]["arguments"]
        elif event["type"] == "response.output_item.done" and event["item"]["type"] == "function_call":
            names[event["output_index"]] = event["item"]["name"]
            texts[event["output_index"]] = event["item"]["arguments"]
        elif event["type"] == "content_block_start" and event["content_block"]["type"] == "tool_use":
            names[event["index"]] = event["content_block"]["name"]
        elif event["type"] == "content_block_delta" and event["delta"]["type"] == "input_json_delta":
            texts[event["index"]] = texts.get(event["index"], "") + event["delta"]["partial_json"]
    return [(name, json.loads(texts[index])) for index, name in names.items()]


@pytest.mark.parametrize("path", ["chat/completions", "responses", "messages"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("place", [{"index": 0}, {}], ids=["one index", "no index"])
async def test_two_calls_at_one_index_are_two_calls(
    tmp_path: Path, path: str, stream: bool, place: dict[str, int]
) -> None:
    async with in_front_of(tmp_path, chunks(of_index(1, **place), of_index(2, **place))) as fronted:
        assert await calls_of(fronted, path, stream) == CALLS
