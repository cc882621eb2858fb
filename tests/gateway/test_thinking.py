"""Thinking that a client switches off or on, in the words of each format, and answers that are held to a schema."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gateway.callers import FORMATS, Caller, Talk, user
from tests.gateway.conftest import Agents
from tests.gateway.starting import gateway_on, settings, stub_engine
from turnwise.types import Turn

OFF: dict[str, list[dict[str, Any]]] = {
    "chat": [
        {"enable_thinking": False},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"chat_template_kwargs": {"thinking": False}},
        {"thinking": {"type": "disabled"}},
        {"thinking": False},
        {"reasoning_effort": "none"},
        {"reasoning": {"effort": "none"}},
        {"reasoning": {"enabled": False}},
    ],
    "responses": [{"reasoning": {"effort": "none"}}],
    "messages": [{"thinking": {"type": "disabled"}}],
}
ON: dict[str, list[dict[str, Any]]] = {
    "chat": [{}, {"enable_thinking": True}, {"thinking": {"type": "enabled"}}, {"reasoning_effort": "high"}],
    "responses": [{}, {"reasoning": {"effort": "low"}}],
    "messages": [{}, {"thinking": {"type": "enabled", "budget_tokens": 1024}}, {"thinking": {"type": "adaptive"}}],
}
WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("chat", {"enable_thinking": "no"}, "enable_thinking"),
    ("chat", {"chat_template_kwargs": {"enable_thinking": 0}}, "chat_template_kwargs.enable_thinking"),
    ("chat", {"chat_template_kwargs": {"add_vision_id": True}}, "chat_template_kwargs.add_vision_id"),
    ("chat", {"chat_template_kwargs": []}, "chat_template_kwargs"),
    ("chat", {"enable_thinking": False, "thinking": {"type": "enabled"}}, "thinking"),
    ("messages", {"thinking": {"type": "off"}}, "thinking.type"),
    ("messages", {"thinking": "no"}, "thinking.type"),
    ("messages", {"thinking": {"type": ["enabled"]}}, "thinking.type"),
]
CLOSED = "<think>\n\n</think>\n\n"
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
NAMED = {"name": "n", "schema": SCHEMA}
HELD: dict[str, dict[str, Any]] = {
    "chat": {"response_format": {"type": "json_schema", "json_schema": NAMED}},
    "responses": {"text": {"format": {"type": "json_schema"} | NAMED}},
    "messages": {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
}
FIELDS = {"chat": "response_format", "responses": "text.format", "messages": "output_config.format"}


def shown(gateway: Agents, turn: Turn) -> str:
    """The prompt as the model reads it."""
    return gateway.stub.tokenizer.decode(turn.prompt_ids, skip_special_tokens=False)


def test_a_client_that_wants_no_thinking_gets_none(caller: Caller, request: pytest.FixtureRequest) -> None:
    for i, field in enumerate(OFF[caller.name]):
        turn = caller.ask([user(f"say: {i} {request.node.name}")], **field)
        assert shown(caller.gateway, turn).endswith("assistant\n" + CLOSED), field  # type: ignore[arg-type]
        assert turn.answer["content"].startswith(str(i)) and "reasoning_content" not in turn.answer
    for i, field in enumerate(ON[caller.name]):
        turn = caller.ask([user(f"say: <think>\nhm\n</think>\n\n{i} {request.node.name}")], **field)
        assert shown(caller.gateway, turn).endswith("<|im_start|>assistant\n"), field  # type: ignore[arg-type]
        assert turn.answer["reasoning_content"].strip() == "hm"


def test_a_conversation_without_thinking_is_extended_and_one_that_changes_is_not(
    caller: Caller, request: pytest.FixtureRequest
) -> None:
    off = OFF[caller.name][0]
    talk = Talk(caller, [user(f"say: one {request.node.name}")])
    first = talk.ask(**off)
    talk.say("say: two")
    second = talk.ask(**off)
    assert second.bridged and second.prompt_ids[: len(first.prompt_ids)] == first.prompt_ids
    talk.say("say: three")
    third = talk.ask()
    assert not third.bridged and third.session_id == first.session_id and third.parent_id == second.id


@pytest.mark.parametrize(("name", "field", "param"), WRONG)
def test_what_is_no_answer_to_whether_to_think_is_refused(
    qwen: Agents, name: str, field: dict[str, Any], param: str
) -> None:
    response = Caller(qwen, name, False).post([user("say: hm")], **field)
    assert response.status_code == 400 and f"'{param}'" in response.json()["error"]["message"]
    assert not qwen.stub.sampled


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
    assert turn.answer["content"] == said and "reasoning_content" not in turn.answer


def test_tools_and_a_schema_in_one_request_are_refused_by_name(able: Caller) -> None:
    def ask(**more: Any) -> httpx.Response:
        return able.post([user('say: {"n": 2}')], tools=True, **HELD[able.name], **more)

    response = ask()
    assert response.status_code == 400 and FIELDS[able.name] in response.json()["error"]["message"]
    free = ask(tool_choice={"type": "none"} if able.name == "messages" else "none")
    assert free.status_code == 200, free.text
