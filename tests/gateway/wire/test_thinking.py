"""Thinking that a client switches off or on, in the words of each format."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.callers import Caller, Talk, user
from tests.gateway.conftest import Agents
from turnwise.journal import WholeTurn
from turnwise.messages import text_of, thinking_in

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
    ("chat", {"chat_template_kwargs": {"preserve_thinking": 1}}, "chat_template_kwargs.preserve_thinking"),
    ("chat", {"chat_template_kwargs": {"add_vision_id": True}}, "chat_template_kwargs.add_vision_id"),
    ("chat", {"chat_template_kwargs": []}, "chat_template_kwargs"),
    ("chat", {"enable_thinking": False, "thinking": {"type": "enabled"}}, "thinking"),
    ("messages", {"thinking": {"type": "off"}}, "thinking.type"),
    ("messages", {"thinking": "no"}, "thinking.type"),
    ("messages", {"thinking": {"type": ["enabled"]}}, "thinking.type"),
]
CLOSED = "<think>\n\n</think>\n\n"


def shown(gateway: Agents, turn: WholeTurn) -> str:
    """The prompt as the model reads it."""
    return gateway.stub.tokenizer.decode(turn.prompt_ids, skip_special_tokens=False)


def test_a_client_that_wants_no_thinking_gets_none(caller: Caller, request: pytest.FixtureRequest) -> None:
    for i, field in enumerate(OFF[caller.name]):
        turn = caller.ask([user(f"say: {i} {request.node.name}")], **field)
        assert shown(caller.gateway, turn).endswith("assistant\n" + CLOSED), field  # type: ignore[arg-type]
        assert text_of(turn.answer).startswith(str(i)) and not thinking_in(turn.answer)
    for i, field in enumerate(ON[caller.name]):
        turn = caller.ask([user(f"say: <think>\nhm\n</think>\n\n{i} {request.node.name}")], **field)
        assert shown(caller.gateway, turn).endswith("<|im_start|>assistant\n"), field  # type: ignore[arg-type]
        assert thinking_in(turn.answer).strip() == "hm"


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


@pytest.mark.parametrize("keep", [False, True])
def test_what_was_thought_stays_where_a_client_asks_for_it(qwen: Agents, keep: bool) -> None:
    """The template drops it when the user speaks again, so that no prompt could go on from the one before."""
    fields: dict[str, Any] = {"chat_template_kwargs": {"preserve_thinking": True}} if keep else {}
    talk = Talk(Caller(qwen, "chat", False), [user(f"say: <think>\nhm\n</think>\n\none {keep}")])
    first = talk.ask(**fields)
    talk.say("say: two")
    second = talk.ask(**fields)
    assert second.session_id == first.session_id and second.parent_id == first.id
    assert second.bridged is keep and ("assistant\n<think>\nhm\n</think>\n\none" in shown(qwen, second)) is keep


@pytest.mark.parametrize(("name", "field", "param"), WRONG)
def test_what_is_no_answer_to_whether_to_think_is_refused(
    qwen: Agents, name: str, field: dict[str, Any], param: str
) -> None:
    response = Caller(qwen, name, False).post([user("say: hm")], **field)
    assert response.status_code == 400 and f"'{param}'" in response.json()["error"]["message"]
    assert not qwen.stub.sampled
