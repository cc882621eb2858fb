"""Answers that an engine holds to a grammar: to a JSON schema, or to a tool call that must be made."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gateway.callers import FORMATS, Caller, user
from tests.gateway.conftest import Agents
from tests.gateway.encoders import Habits
from tests.gateway.starting import gateway_on, settings, stub_engine
from tests.gateway.wire.test_thinking import CLOSED, shown
from turnwise.messages import calls_of, text_of, thinking_in
from turnwise.types import FinishReason

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
NAMED = {"name": "n", "schema": SCHEMA}
HELD: dict[str, dict[str, Any]] = {
    "chat": {"response_format": {"type": "json_schema", "json_schema": NAMED}},
    "responses": {"text": {"format": {"type": "json_schema"} | NAMED}},
    "messages": {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
}
FIELDS = {"chat": "response_format", "responses": "text.format", "messages": "output_config.format"}


TAG = re.compile(r'<tool_call>\n{"name": "(\w+)", "arguments": ')
MUST: dict[str, list[tuple[Any, list[str]]]] = {
    "chat": [("required", ["add", "sub"]), ({"type": "function", "function": {"name": "sub"}}, ["sub"])],
    "responses": [("required", ["add", "sub"]), ({"type": "function", "name": "sub"}, ["sub"])],
    "messages": [({"type": "any"}, ["add", "sub"]), ({"type": "tool", "name": "sub"}, ["sub"])],
}
"""How each format says that any tool, or one of them, must be called."""


@pytest.fixture(scope="module")
def _able(tmp_path_factory: pytest.TempPathFactory, qwen3_dir: Path) -> Iterator[Agents]:
    """A gateway before an engine that holds answers to a schema, as vLLM does; the engine is the stub."""
    with ExitStack() as stack:
        stub, url = stack.enter_context(stub_engine(qwen3_dir))
        config = settings(
            tmp_path_factory.mktemp("home") / "home", qwen3_dir, **{"engine.kind": "vllm", "engine.url": url}
        )
        yield stack.enter_context(gateway_on(config, stub, url))


@pytest.fixture(params=FORMATS)
def able(_able: Agents, request: pytest.FixtureRequest) -> Caller:
    return Caller(_able, request.param, False)


def test_an_answer_held_to_a_schema_is_no_reasoning(able: Caller) -> None:
    said = '{"n": 1}'
    turn = able.ask([user(f"say: {said}")], headers={"X-Session-Id": able.name}, **HELD[able.name])
    assert shown(able.gateway, turn).endswith(CLOSED)  # type: ignore[arg-type]
    assert text_of(turn.answer) == said and not thinking_in(turn.answer)


def test_tools_and_a_schema_in_one_request_are_refused_by_name(able: Caller) -> None:
    def ask(**more: Any) -> httpx.Response:
        return able.post([user('say: {"n": 2}')], tools=True, **HELD[able.name], **more)

    response = ask()
    assert response.status_code == 400 and FIELDS[able.name] in response.json()["error"]["message"]
    free = ask(tool_choice={"type": "none"} if able.name == "messages" else "none")
    assert free.status_code == 200, free.text


def both_tools(caller: Caller) -> list[dict[str, Any]]:
    if caller.name == "chat":
        return [caller.tool, {"type": "function", "function": caller.tool["function"] | {"name": "sub"}}]
    return [caller.tool, caller.tool | {"name": "sub"}]


@pytest.mark.parametrize("which", [0, 1])
def test_a_call_that_must_be_made_is_held_to_the_familys_words_and_the_tools_schema(able: Caller, which: int) -> None:
    choice, names = MUST[able.name][which]
    said = 'say: <tool_call>\n{"name": "sub", "arguments": {"a": 1}}\n</tool_call>'
    body = able.body([user(said)], Habits()) | {"tools": both_tools(able), "tool_choice": choice}
    turn = able.turn(able.send(body))
    held = json.loads(able.gateway.stub.structured[-1]["structural_tag"])["format"]
    tags = held["elements"] if len(names) > 1 else [held]
    assert [TAG.fullmatch(tag["begin"])[1] for tag in tags] == names  # type: ignore[index]
    assert all(tag["content"]["json_schema"]["type"] == "object" for tag in tags)
    assert all(tag["end"] == "}\n</tool_call>" for tag in tags)
    assert shown(able.gateway, turn).endswith(CLOSED)  # type: ignore[arg-type]
    assert turn.finish_reason is FinishReason.TOOL_CALLS
    assert [call.name for call in calls_of(turn.answer)] == ["sub"]


def test_one_forced_call_at_a_time_is_what_a_forced_call_is(able: Caller) -> None:
    choice: Any = MUST[able.name][0][0]
    single: dict[str, Any] = {"parallel_tool_calls": False}
    if able.name == "messages":
        choice, single = choice | {"disable_parallel_tool_use": True}, {}
    response = able.post([user("say: hm")], tools=True, tool_choice=choice, **single)
    assert response.status_code == 200, response.text


def test_a_retry_is_given_no_answer_to_another_wish(able: Caller) -> None:
    """A client whose first attempt was lost on its way, behind one that asked in another way."""
    said = [user('say: {"n": 3}')]
    again = {"x-stainless-retry-count": "1"}
    free = able.ask(said)
    bound = able.ask(said, headers=again, **HELD[able.name])
    assert bound.id != free.id and shown(able.gateway, bound).endswith(CLOSED)  # type: ignore[arg-type]
    assert able.ask(said, headers=again, **HELD[able.name]).id == bound.id
    assert able.ask(said, headers=again).id == free.id


@pytest.mark.parametrize("name", FORMATS)
def test_tools_that_may_not_be_called_stand_in_the_record(qwen: Agents, name: str) -> None:
    caller = Caller(qwen, name, False)
    none: Any = {"type": "none"} if name == "messages" else "none"
    more = {} if name == "messages" else {"parallel_tool_calls": False}
    turn = caller.ask([user("say: nothing to call")], tools=True, tool_choice=none, **more)
    row = qwen.journal.lookups.turn(turn.id)
    assert row is not None and turn.tools is None
    assert row.params["withheld_tools"][0]["function"]["name"] == "add"


def test_the_prompt_that_is_counted_is_the_one_that_is_sent(_able: Agents) -> None:
    caller = Caller(_able, "messages", False)
    body = caller.body([user("say: count me")], Habits()) | {"tools": [caller.tool]}
    body |= {"tool_choice": {"type": "any"}}
    counted = httpx.post(f"{_able.url}/v1/messages/count_tokens", headers=_able.auth, json=body).json()
    assert counted["input_tokens"] == len(caller.turn(caller.send(body)).prompt_ids)


def test_an_engine_that_samples_freely_is_not_said_to_be_held(qwen: Agents) -> None:
    for name in FORMATS:
        response = Caller(qwen, name, False).post([user("say: hm")], tools=True, tool_choice=MUST[name][0][0])
        assert response.status_code == 400 and "tool_choice" in response.json()["error"]["message"]


CHOICE = {"choice": ["yes", "no"]}


def asked_for(agents: Agents, **fields: Any) -> httpx.Response:
    body = {"model": "turnwise", "messages": [user("say: yes")]} | fields
    return httpx.post(f"{agents.url}/v1/chat/completions", headers=agents.auth, json=body, timeout=30)


def test_vllms_own_grammars_are_passed_on_with_thinking_off(_able: Agents) -> None:
    answered = asked_for(_able, structured_outputs=CHOICE)
    assert answered.status_code == 200, answered.text
    assert _able.stub.structured[-1] == CHOICE
    turn = _able.journal.turns.get(answered.headers["x-turnwise-turn-id"])
    assert turn is not None
    assert shown(_able, turn).endswith(CLOSED)
    schema = {"type": "json_schema", "json_schema": NAMED}
    for more in ({"response_format": schema}, {"tools": [FORMATS["chat"][2]]}):
        refused = asked_for(_able, structured_outputs=CHOICE, **more)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "structured_outputs")


def test_another_engine_refuses_vllms_grammars_by_name(qwen: Agents) -> None:
    refused = asked_for(qwen, structured_outputs=CHOICE)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "structured_outputs")
