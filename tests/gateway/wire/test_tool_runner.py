"""Anthropic's own tool runner, which begins a thread on the server and goes on without one where there is none."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from anthropic import beta_tool

from tests.gateway.conftest import Agents
from tests.support.wire import nested_calls
from turnwise.messages import text_of
from turnwise.types import TurnState

HI: dict[str, Any] = {"model": "turnwise", "max_tokens": 50, "messages": [{"role": "user", "content": "hi"}]}


@beta_tool
def add(a: int) -> str:
    """Adds one.

    Args:
        a: a number
    """
    return str(a + 1)


def test_the_tool_runner_runs_to_its_end(qwen: Agents) -> None:
    runner = qwen.anthropic.beta.messages.tool_runner(
        model="turnwise",
        max_tokens=200,
        tools=[add],
        messages=[{"role": "user", "content": "say: Adding.\n" + nested_calls({"a": 1})}],
    )
    answers = list(runner)
    assert [answer.stop_reason for answer in answers] == ["tool_use", "end_turn"]
    first, second = (qwen.journal.turns.get(f"turn-{answer.id.removeprefix('msg_')}") for answer in answers)
    assert first is not None
    assert second is not None
    assert first.session_id == second.session_id
    assert first.state is TurnState.JUDGING, "the tool's result is its next state"
    assert (second.messages[-1].role, text_of(second.messages[-1])) == ("tool", "2")
    assert len(qwen.stub.sampled) == 2, "what was refused for its thread was not answered"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["messages?beta=true", "messages", "messages/count_tokens"])
@pytest.mark.parametrize("thread", [{"type": "create"}, {"type": "continue", "previous_message_id": "msg_1"}])
def test_a_thread_is_refused_in_the_shape_that_the_sdks_look_for(
    qwen: Agents, thread: dict[str, str], path: str, stream: bool
) -> None:
    body = HI | {"thread": thread} | ({"stream": True} if stream else {})
    refused = httpx.post(f"{qwen.url}/v1/{path}", headers=qwen.auth, json=body, timeout=30)
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["details"] == {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}


def test_a_thread_that_is_null_says_nothing(qwen: Agents) -> None:
    answered = httpx.post(f"{qwen.url}/v1/messages", headers=qwen.auth, json=HI | {"thread": None}, timeout=30)
    assert answered.status_code == 200, answered.text
