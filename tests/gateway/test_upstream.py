"""A gateway in front of an upstream that takes messages: a second gateway, in OpenAI's and in Anthropic's format."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.conftest import GatewayThread, Running
from tests.support.servers import wait_until
from turnwise.config import load_config
from turnwise.journal import Journal
from turnwise.types import Exclusion, TurnState, Verdict

TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}


@pytest.fixture(params=["openai", "anthropic"])
def relay(
    request: pytest.FixtureRequest, gateway: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Running]:
    """A gateway whose engine is the API of `gateway`."""
    monkeypatch.setenv("TURNWISE_ENGINE_API_KEY", gateway.token)
    settings: dict[str, Any] = {
        "home": tmp_path / "relay",
        "engine.kind": "upstream",
        "engine.url": f"{gateway.url}/v1",
        "engine.api": request.param,
        "engine.model": "turnwise",
        "train.enabled": False,
    }
    config = load_config(overrides=settings)
    thread = GatewayThread(config, gateway.url)
    thread.start(config)
    journal = Journal.open(config)
    token = (config.home / "token").read_text().strip()
    yield Running(thread.url, token, gateway.stub, journal, config)
    journal.close()
    thread.stop()


def ask(gateway: Running, messages: list[Any], **more: Any) -> Any:
    return gateway.client().chat.completions.create(model="turnwise", messages=messages, max_tokens=200, **more)


def test_served_recorded_judged_and_never_trained(relay: Running) -> None:
    first = ask(relay, [{"role": "user", "content": "say: The sky is blue."}])
    answer = first.choices[0].message
    assert (answer.content, first.choices[0].finish_reason) == ("The sky is blue.", "stop")
    assert first.usage.completion_tokens > 0
    turn = relay.turn(first)
    assert (turn.state, turn.response_ids, turn.logprobs, turn.prompt_ids) == (TurnState.WAITING, [], None, [])
    assert turn.answer["content"] == "The sky is blue."

    history = [{"role": "user", "content": "say: The sky is blue."}, {"role": "assistant", "content": answer.content}]
    ask(relay, [*history, {"role": "user", "content": "No, shorter please."}])
    (task,) = relay.journal.claim_for_judging("judge", 1, 60.0)
    assert task.turn_id == turn.id
    assert [m["content"] for m in task.next_state] == ["No, shorter please."]
    relay.journal.record_verdict(task, Verdict(score=-1, hint="Be shorter.", judge="test", reason="asked to"))
    after = relay.turn(first)
    assert (after.state, after.exclusion) == (TurnState.EXCLUDED, Exclusion.NOT_TRAINABLE)
    assert relay.journal.status()["samples_ready"] == 0


def test_streams_and_tool_calls_pass_through(relay: Running) -> None:
    text = 'say: Wait. <tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'
    with relay.client().chat.completions.stream(
        model="turnwise", messages=[{"role": "user", "content": text}], tools=[TOOL], max_tokens=200
    ) as events:
        kinds = [event.type for event in events]
        final = events.get_final_completion().choices[0]
    assert kinds.count("content.delta") >= 1
    assert (final.message.content, final.finish_reason) == ("Wait.", "tool_calls")
    (call,) = final.message.tool_calls or []
    assert (call.function.name, call.function.arguments) == ("add", '{"a": 1}')


def test_an_error_keeps_its_status_and_the_turn_is_not_lost(relay: Running) -> None:
    relay.stub.refuse_with = 429
    with pytest.raises(openai.RateLimitError) as caught:
        ask(relay, [{"role": "user", "content": "hello"}])
    assert "upstream" in caught.value.message
    wait_until(lambda: relay.journal.status()["excluded"] == {Exclusion.INFRASTRUCTURE: 1})


def test_status_says_that_nothing_is_trained(relay: Running) -> None:
    status = httpx.get(f"{relay.url}/v1/status", headers=relay.auth).json()
    assert status["engine"] == {"kind": "upstream", "trainable": False}
    assert httpx.get(f"{relay.url}/readyz").status_code == 200
