"""Chat completions as a client sees them, and what the journal holds of them."""

from __future__ import annotations

import json

import httpx
import pytest
from openai import APIStatusError
from openai.types.chat import ChatCompletionChunk

from tests.conftest import Running
from tests.support.servers import wait_until
from turnwise.types import Exclusion, TurnState

TOOLS = [{"type": "function", "function": {"name": "add", "description": "adds", "parameters": {"type": "object"}}}]


def ask(gateway: Running, text: str = "say: hello there", **options):
    return gateway.client().chat.completions.create(
        model="turnwise", messages=[{"role": "user", "content": text}], **options
    )


def test_an_answer_and_its_record(gateway: Running) -> None:
    answer = ask(gateway, temperature=0.7, seed=3)
    assert answer.choices[0].message.content == "hello there"
    assert answer.choices[0].finish_reason == "stop"
    turn = gateway.turn(answer)
    prompt_ids, response_ids, model = gateway.stub.sampled[0]
    assert (turn.prompt_ids, turn.response_ids, model) == (prompt_ids, response_ids, "base")
    assert turn.logprobs == [-0.125 * (i + 1) for i in range(len(response_ids))]
    assert (turn.temperature, turn.state, turn.version) == (0.7, TurnState.WAITING, 0)
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (len(prompt_ids), len(response_ids))


def test_a_stream_has_the_same_text_events_and_usage(gateway: Running) -> None:
    gateway.stub.token_delay_s = 0.03  # tokens that arrive together leave together
    stream = ask(gateway, "say: día 🤖 fin", stream=True, stream_options={"include_usage": True})
    chunks = list(stream)
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk.model_dump())
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == "día 🤖 fin"
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert len([c for c in chunks if c.choices and c.choices[0].delta.content]) > 2, "token by token"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == len(gateway.stub.sampled[0][1])
    assert gateway.turn(chunks[0]).state is TurnState.WAITING


def test_a_turn_is_durable_before_the_last_byte(gateway: Running) -> None:
    with httpx.stream(
        "POST",
        f"{gateway.url}/v1/chat/completions",
        headers=gateway.auth,
        json={"model": "turnwise", "stream": True, "messages": [{"role": "user", "content": "say: one two"}]},
        timeout=20,
    ) as response:
        for line in response.iter_lines():
            if '"finish_reason":"stop"' in line:
                assert gateway.turn(response.headers["x-turnwise-turn-id"]).state is TurnState.WAITING
                break
        else:
            pytest.fail("no finish event")


@pytest.mark.parametrize("stream", [False, True])
def test_tool_calls(gateway: Running, stream: bool) -> None:
    text = 'say: Let me see. <tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'
    text += '<tool_call>{"name": "add", "arguments": {"a": 2}}</tool_call>'
    if stream:
        with gateway.client().chat.completions.stream(
            model="turnwise", messages=[{"role": "user", "content": text}], tools=TOOLS
        ) as events:
            for _ in events:
                pass
            choice = events.get_final_completion().choices[0]
    else:
        choice = ask(gateway, text, tools=TOOLS).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "Let me see."
    calls = choice.message.tool_calls or []
    assert [json.loads(c.function.arguments) for c in calls] == [{"a": 1}, {"a": 2}]
    assert len({c.id for c in calls}) == 2


def test_a_broken_tool_call_stays_text(gateway: Running) -> None:
    choice = ask(gateway, 'say: <tool_call>{"name": add}</tool_call>', tools=TOOLS).choices[0]
    assert choice.message.tool_calls is None
    assert choice.message.content == '<tool_call>{"name": add}</tool_call>'
    assert choice.finish_reason == "stop"


def test_logprobs_are_those_of_the_sampled_tokens(gateway: Running) -> None:
    answer = ask(gateway, logprobs=True)
    content = answer.choices[0].logprobs.content
    assert [t.logprob for t in content] == gateway.turn(answer).logprobs


def test_stop_string_and_limit(gateway: Running) -> None:
    stopped = ask(gateway, "say: one END two", stop="END")
    assert stopped.choices[0].message.content == "one "
    cut = ask(gateway, "say: one two three four five six", max_tokens=3)
    assert cut.choices[0].finish_reason == "length"
    assert len(gateway.turn(cut).response_ids) == 3


def test_headers_carry_turn_session_and_version(gateway: Running) -> None:
    raw = gateway.client().chat.completions.with_raw_response.create(
        model="turnwise", messages=[{"role": "user", "content": "hi"}], extra_headers={"X-Session-Id": "abc"}
    )
    assert raw.headers["x-turnwise-session-id"] == "abc"
    assert raw.headers["x-turnwise-version"] == "0"
    assert raw.headers["x-turnwise-turn-id"] == raw.parse().id.removeprefix("chatcmpl-")


def test_a_client_that_goes_away_leaves_an_aborted_turn(gateway: Running) -> None:
    gateway.stub.token_delay_s = 0.05
    with httpx.stream(
        "POST",
        f"{gateway.url}/v1/chat/completions",
        headers=gateway.auth,
        json={"model": "turnwise", "stream": True, "messages": [{"role": "user", "content": "say: " + "word " * 200}]},
        timeout=20,
    ) as response:
        turn_id = response.headers["x-turnwise-turn-id"]
        for line in response.iter_lines():
            if "word" in line:
                break
    turn = wait_until(lambda: (t := gateway.turn(turn_id)).state is TurnState.EXCLUDED and t)
    assert turn.exclusion is Exclusion.ABORTED
    wait_until(lambda: gateway.stub.cancelled == 1)


def test_a_client_that_hangs_up_while_waiting_for_a_whole_answer(gateway: Running) -> None:
    gateway.stub.token_delay_s = 0.05
    body = {"model": "turnwise", "messages": [{"role": "user", "content": "say: " + "word " * 200}]}
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{gateway.url}/v1/chat/completions", headers=gateway.auth, json=body, timeout=0.5)
    wait_until(lambda: gateway.journal.status.figures()["excluded"].get(Exclusion.ABORTED) == 1)
    wait_until(lambda: gateway.stub.cancelled == 1)


def test_an_engine_that_dies_in_the_middle_of_a_stream(gateway: Running) -> None:
    gateway.stub.die_after = 2
    with pytest.raises(Exception, match="engine"):
        list(ask(gateway, "say: one two three four", stream=True))
    wait_until(lambda: gateway.journal.status.figures()["excluded"].get(Exclusion.INFRASTRUCTURE) == 1)
    gateway.stub.die_after = None
    assert ask(gateway).choices[0].message.content == "hello there"


def test_a_full_engine_is_a_429_for_streams_too(gateway: Running) -> None:
    gateway.stub.refuse_with = 429
    for stream in (False, True):
        with pytest.raises(APIStatusError) as refused:
            ask(gateway, stream=stream)
        assert refused.value.status_code == 429
        assert refused.value.response.headers["retry-after"] == "1"


def test_an_engine_that_forgot_its_adapters_is_given_them_again(gateway: Running) -> None:
    from tests.support.versions import publish

    publish(gateway.journal)
    wait_until(lambda: "v1" in gateway.stub.known)
    wait_until(lambda: gateway.turn(ask(gateway)).version == 1)
    gateway.stub.known = {"base"}  # as after a restart
    assert gateway.turn(ask(gateway)).version == 1
    assert gateway.stub.sampled[-1][2] == "v1"


def test_pinned_versions_are_served_and_never_trained(gateway: Running) -> None:
    answer = gateway.client().chat.completions.create(
        model="turnwise@base", messages=[{"role": "user", "content": "hi"}]
    )
    assert gateway.turn(answer).exclusion is Exclusion.PINNED_VERSION
