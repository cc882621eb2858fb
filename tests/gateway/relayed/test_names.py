"""Tools with names that an upstream's API does not take: what Codex sends first, and what other clients may."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.relayed.test_calls import calls_of, chunks
from tests.gateway.relayed.test_upstream import in_front_of
from tests.support.raw_http import sse
from tests.support.tap import read_recording

CODEX = Path(__file__).parents[1] / "traffic" / "codex.json"
LONGEST = {"openai": 64, "anthropic": 128}
OWN = "multi_agent_v1.spawn_agent"
TOLD = "multi_agent_v1_spawn_agent"


def calling(api: str, name: str) -> list[Any]:
    """An upstream's answer: one call of the tool that it knows under this name."""
    if api == "openai":
        return chunks({"index": 0, "id": "c", "function": {"name": name, "arguments": "{}"}})
    block = {"type": "tool_use", "id": "c", "name": name, "input": {}}
    return sse(
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {}},
    )


def names_told(api: str, body: dict[str, Any]) -> list[str]:
    return [tool["name"] if api == "anthropic" else tool["function"]["name"] for tool in body["tools"]]


@pytest.mark.parametrize("api", ["openai", "anthropic"])
async def test_codex_and_an_upstream_each_have_the_names_of_tools_that_they_know(tmp_path: Path, api: str) -> None:
    first = next(request["body"] for request in read_recording(CODEX) if request["method"] == "POST")
    async with in_front_of(tmp_path, calling(api, TOLD), api=api) as fronted:
        answered = await fronted.client.post("/v1/responses", json=first | {"stream": False})
        assert answered.status_code == 200, answered.text
        (call,) = (item for item in answered.json()["output"] if item["type"] == "function_call")
        assert (call["namespace"], call["name"]) == tuple(OWN.split("."))
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "done"}
        again = first | {"stream": True, "input": [*first["input"], call, result]}
        streamed = await fronted.client.post("/v1/responses", json=again)
        events = [json.loads(line[6:]) for line in streamed.text.splitlines() if line[:7] == "data: {"]
        bodies = fronted.asked()
    (item,) = (e["item"] for e in events if e["type"] == "response.output_item.done" and "name" in e["item"])
    assert (item["namespace"], item["name"]) == tuple(OWN.split("."))
    for body in bodies:
        told = names_told(api, body)
        assert TOLD in told and "exec_command" in told
        assert all(re.fullmatch(r"[a-zA-Z0-9_-]+", name) and len(name) <= LONGEST[api] for name in told)
    assert f'"{TOLD}"' in json.dumps(bodies[1]["messages"])
    assert OWN not in json.dumps(bodies)


@pytest.mark.parametrize("path", ["chat/completions", "responses", "messages"])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_has_the_name_that_its_client_gave(tmp_path: Path, path: str, stream: bool) -> None:
    name = "files.read:" + "x" * 100
    function = {"name": name, "parameters": {"type": "object"}}
    tools = {
        "chat/completions": [{"type": "function", "function": function}],
        "responses": [{"type": "function"} | function],
        "messages": [{"name": name, "input_schema": {"type": "object"}}],
    }
    told = ("files_read_" + "x" * 100)[:64]
    async with in_front_of(tmp_path, calling("openai", told)) as fronted:
        assert await calls_of(fronted, path, stream, tools=tools[path]) == [(name, {})]
        assert names_told("openai", fronted.asked()[0]) == [told]
