"""What holds in every wire format alike: sessions by URL and header, retries, token truth, engines that break off."""

from __future__ import annotations

import json

import pytest

from tests.gateway.callers import Caller, user
from tests.support.servers import wait_until
from tests.support.wire import nested_calls
from turnwise.messages import calls_of, to_chat
from turnwise.types import Exclusion, TurnState


@pytest.mark.parametrize("given", ["url", "header"])
def test_the_client_names_the_session(caller: Caller, given: str, request: pytest.FixtureRequest) -> None:
    name = f"mine-{request.node.callspec.id}"
    prefix, headers = (f"/s/{name}", {}) if given == "url" else ("", {"X-Session-Id": name})
    turns = [caller.ask([user(f"say: number {n} of {name}")], prefix, headers=headers) for n in range(2)]
    assert [turn.session_id for turn in turns] == [name, name]


def test_a_retry_is_answered_from_the_record(caller: Caller, request: pytest.FixtureRequest) -> None:
    asked = [user(f"say: once, for {request.node.callspec.id}")]
    first, again = (caller.post(asked, headers={"Idempotency-Key": request.node.callspec.id}) for _ in range(2))
    assert first.headers["x-turnwise-turn-id"] == again.headers["x-turnwise-turn-id"]
    assert len(caller.gateway.stub.sampled) == 1, "the engine was asked once"
    assert "once, for" in again.text


def test_two_clients_with_the_same_words_are_two_sessions(caller: Caller, request: pytest.FixtureRequest) -> None:
    asked = [user(f"say: the same words for {request.node.callspec.id}")]
    one, other = (caller.ask(asked, headers={"User-Agent": agent}) for agent in ("one/1", "other/1"))
    assert one.session_id != other.session_id


@pytest.mark.parametrize(
    "said",
    [
        "<think>\ntwo sums\n</think>\n\nAdding.\n" + nested_calls({"a": 1}, {"a": 2}),
        "día 🤖 fin  with  spaces\nand lines ",
    ],
    ids=["calls", "text"],
)
def test_the_recorded_ids_are_the_sampled_ones_and_those_of_calls_begin_the_next_prompt(
    caller: Caller, said: str, request: pytest.FixtureRequest
) -> None:
    asked = [{"role": "system", "content": request.node.callspec.id}, user("say: " + said)]
    first = caller.ask(asked, tools=True)
    prompt, sampled, _ = caller.gateway.stub.sampled[-1]
    assert (first.prompt_ids, first.response_ids) == (prompt, sampled)
    calls = calls_of(first.answer)
    results = [{"role": "tool", "tool_call_id": call.id, "content": json.dumps(n)} for n, call in enumerate(calls)]
    second = caller.ask([*asked, to_chat(first.answer), *(results or [user("say: more")])], tools=True)
    assert second.session_id == first.session_id
    assert second.prompt_ids == caller.gateway.stub.sampled[-1][0]
    # Qwen3's template takes the reasoning out of the past once the user speaks again: docs/decisions/0003.
    assert second.bridged == bool(calls)
    if second.bridged:
        assert second.prompt_ids[: len(prompt) + len(sampled)] == [*prompt, *sampled]


def test_an_answer_that_the_engine_breaks_off_is_no_answer(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caller.gateway.stub, "finish", "abort")
    caller.gateway.stub.token_delay_s = 0.01
    before = caller.gateway.journal.status.figures()["excluded"].get(Exclusion.INFRASTRUCTURE, 0)
    response = caller.post([user("say: one two three four")])
    assert response.status_code == (200 if caller.stream else 502), response.text
    assert "broke the answer off" in response.text
    wait_until(
        lambda: caller.gateway.journal.status.figures()["excluded"].get(Exclusion.INFRASTRUCTURE, 0) == before + 1
    )


def test_log_probs_that_are_missing_stay_missing(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caller.gateway.stub, "logprobs", "absent")
    turn = caller.ask([user("say: one two three four")])
    assert turn.logprobs is None
    assert turn.state is TurnState.WAITING
