"""Which tool an upstream must call, and how many at once, in every format and for both kinds of upstream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import Running
from tests.gateway.relayed.test_upstream import in_front_of
from tests.support.raw_http import sse

F: dict[str, Any] = {"name": "f", "parameters": {"type": "object"}}
CHAT: list[Any] = [{"type": "function", "function": F}]
RESPONSES: list[Any] = [{"type": "function", **F}]
GROUPED: list[Any] = [{"type": "namespace", "name": "g", "tools": RESPONSES}]
MESSAGES: list[Any] = [{"name": "f", "input_schema": {"type": "object"}}]
OPENAI_DONE = sse({"choices": [{"delta": {"content": "ok"}, "finish_reason": "stop"}]})
ANTHROPIC_DONE = sse({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}})
NAMED = {"type": "function", "function": {"name": "f"}}


def asked_with(path: str, **fields: Any) -> dict[str, Any]:
    if path == "messages":
        return {"max_tokens": 9, "tools": MESSAGES} | fields
    return {"tools": CHAT if path == "chat/completions" else RESPONSES} | fields


CASES: list[tuple[str, dict[str, Any], Any, Any]] = [
    ("chat/completions", {"tool_choice": "required"}, "required", {"type": "any"}),
    ("chat/completions", {"tool_choice": NAMED}, NAMED, {"type": "tool", "name": "f"}),
    ("chat/completions", {"tool_choice": "auto"}, None, None),
    ("responses", {"tool_choice": "required"}, "required", {"type": "any"}),
    ("responses", {"tool_choice": {"type": "function", "name": "f"}}, NAMED, {"type": "tool", "name": "f"}),
    (
        "responses",
        {"tools": GROUPED, "tool_choice": {"type": "function", "name": "f", "namespace": "g"}},
        {"type": "function", "function": {"name": "g_f"}},
        {"type": "tool", "name": "g_f"},
    ),
    ("messages", {"tool_choice": {"type": "any"}}, "required", {"type": "any"}),
    ("messages", {"tool_choice": {"type": "tool", "name": "f"}}, NAMED, {"type": "tool", "name": "f"}),
    ("messages", {"tool_choice": {"type": "auto"}}, None, None),
]


@pytest.mark.parametrize("api", ["openai", "anthropic"])
@pytest.mark.parametrize(("path", "fields", "openai", "anthropic"), CASES)
async def test_a_choice_of_tools_reaches_the_upstream(
    tmp_path: Path, api: str, path: str, fields: dict[str, Any], openai: Any, anthropic: Any
) -> None:
    async with in_front_of(tmp_path, OPENAI_DONE if api == "openai" else ANTHROPIC_DONE, api=api) as fronted:
        answered = await fronted.ask(path, **asked_with(path, **fields))
        assert answered.status_code == 200, answered.text
        (body,) = fronted.asked()
    assert body.get("tool_choice") == (openai if api == "openai" else anthropic)
    assert "parallel_tool_calls" not in body
    if path == "responses":
        assert answered.json()["tool_choice"] == fields["tool_choice"]


USED: dict[str, list[Any]] = {
    "chat/completions": [
        {
            "role": "assistant",
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "done"},
    ],
    "responses": [
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "done"},
    ],
    "messages": [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "done"}]},
    ],
}


@pytest.mark.parametrize("api", ["openai", "anthropic"])
@pytest.mark.parametrize("path", list(USED))
async def test_tools_that_may_not_be_called_now_are_told_with_the_history_that_used_them(
    tmp_path: Path, api: str, path: str
) -> None:
    said = {"input" if path == "responses" else "messages": [{"role": "user", "content": "hi"}, *USED[path]]}
    choice = {"type": "none"} if path == "messages" else "none"
    async with in_front_of(tmp_path, OPENAI_DONE if api == "openai" else ANTHROPIC_DONE, api=api) as fronted:
        answered = await fronted.ask(path, **asked_with(path, tool_choice=choice, **said))
        assert answered.status_code == 200, answered.text
        (body,) = fronted.asked()
    (tool,) = body["tools"]
    assert (tool["name"] if api == "anthropic" else tool["function"]["name"]) == "f"
    assert body["tool_choice"] == ({"type": "none"} if api == "anthropic" else "none")


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("chat/completions", {"parallel_tool_calls": False}),
        ("responses", {"parallel_tool_calls": False}),
        ("messages", {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}),
    ],
)
async def test_one_call_at_a_time_reaches_the_upstream(tmp_path: Path, path: str, fields: dict[str, Any]) -> None:
    async with in_front_of(tmp_path / "openai", OPENAI_DONE) as fronted:
        answered = await fronted.ask(path, **asked_with(path, **fields))
        assert answered.status_code == 200, answered.text
        assert fronted.asked()[0]["parallel_tool_calls"] is False
    if path == "responses":
        assert answered.json()["parallel_tool_calls"] is False
    async with in_front_of(tmp_path / "anthropic", ANTHROPIC_DONE, api="anthropic") as fronted:
        assert (await fronted.ask(path, **asked_with(path, **fields))).status_code == 200
        assert fronted.asked()[0]["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}


IMPOSSIBLE: list[tuple[str, dict[str, Any]]] = [
    ("chat/completions", {"tool_choice": "required", "tools": []}),
    ("chat/completions", {"tool_choice": {"type": "function", "function": {"name": "other"}}}),
    ("chat/completions", {"tool_choice": {"type": "function", "function": "f"}}),
    ("chat/completions", {"tool_choice": {"type": "allowed_tools"}}),
    ("chat/completions", {"tool_choice": "sometimes"}),
    ("responses", {"tool_choice": {"type": "web_search"}}),
    ("responses", {"tool_choice": {"type": "function", "name": "other"}}),
    ("messages", {"tool_choice": {"type": "tool", "name": "other"}}),
    ("messages", {"tool_choice": {"type": "tool"}}),
    ("messages", {"tool_choice": {"type": "any"}, "tools": None}),
]


@pytest.mark.parametrize(("path", "fields"), IMPOSSIBLE)
async def test_a_choice_that_cannot_be_met_is_refused_by_name(
    tmp_path: Path, path: str, fields: dict[str, Any]
) -> None:
    async with in_front_of(tmp_path, OPENAI_DONE) as fronted:
        refused = await fronted.ask(path, **asked_with(path, **fields))
        assert refused.status_code == 400
        assert "tool_choice" in refused.json()["error"]["message"]
        assert fronted.asked() == []


FREE = [(path, fields) for path, fields, openai, _ in CASES if openai is not None and "tools" not in fields]


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        *FREE,
        ("chat/completions", {"parallel_tool_calls": False}),
        ("responses", {"parallel_tool_calls": False}),
        ("messages", {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}),
    ],
)
def test_an_engine_with_token_ids_still_refuses_what_it_cannot_do(
    gateway: Running, path: str, fields: dict[str, Any]
) -> None:
    said: Any = {"input" if path == "responses" else "messages": [{"role": "user", "content": "hi"}]}
    body = {"model": "turnwise"} | said | asked_with(path, **fields)
    refused = httpx.post(f"{gateway.url}/v1/{path}", json=body, headers=gateway.auth)
    assert refused.status_code == 400
    assert next(iter(fields)) in refused.json()["error"]["message"]
    assert not any(gateway.journal.status.figures()["turns"].values())
