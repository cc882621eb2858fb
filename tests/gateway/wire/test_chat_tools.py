"""Chat completions of a model that reasons and calls tools, through OpenAI's SDK and its own accumulator."""

from __future__ import annotations

from typing import Any

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.gateway.conftest import Agents
from tests.support.wire import KINDS_OF_ANSWER, TOOL, nested_calls, post_stream, without_ids
from turnwise.types import FinishReason, TurnState

TOOLS: Any = [{"type": "function", "function": TOOL}]


def ask(qwen: Agents, text: str, *more: Any, **options: Any) -> ChatCompletion:
    messages: Any = [{"role": "user", "content": text}, *more]
    return qwen.openai.chat.completions.create(model="turnwise", messages=messages, **options)


def streamed(qwen: Agents, text: str, **options: Any) -> tuple[list[Any], ChatCompletion]:
    messages: Any = [{"role": "user", "content": text}]
    options |= {"stream_options": {"include_usage": True}}
    with qwen.openai.chat.completions.stream(model="turnwise", messages=messages, **options) as stream:
        return list(stream), stream.get_final_completion()


ANSWERS = KINDS_OF_ANSWER | {
    "no json": '<tool_call>{"name": "add", "arguments": {"a": nope}}</tool_call>',
}


def visible(completion: ChatCompletion) -> Any:
    """A completion without what the SDK's accumulator does not keep or adds."""
    data = without_ids(completion)
    message = data["choices"][0]["message"]
    if not message.get("content"):
        message.pop("content", None)
    for call in message.get("tool_calls", []):
        call.pop("index", None)
        call["function"].pop("parsed_arguments", None)
    data.pop("object")
    return data


@pytest.mark.parametrize("name", ANSWERS)
def test_a_stream_is_the_same_answer_in_chunks_of_the_sdk(qwen: Agents, name: str) -> None:
    qwen.stub.reply = lambda _: ANSWERS[name]
    text = f"stream {name}"
    _, final = streamed(qwen, text, tools=TOOLS)
    body = {"model": "turnwise", "tools": TOOLS, "messages": [{"role": "user", "content": text}]}
    raw = post_stream(f"{qwen.url}/v1/chat/completions", qwen.auth, body)
    for chunk in raw:
        ChatCompletionChunk.model_validate(chunk, strict=True)
    assert [c["choices"][0]["finish_reason"] for c in raw].count(None) == len(raw) - 1
    reasoning = "".join(c["choices"][0]["delta"].get("reasoning_content", "") for c in raw)
    whole = ask(qwen, text, tools=TOOLS)
    assert reasoning == (whole.choices[0].message.model_dump().get("reasoning_content") or "")
    assert visible(final) == visible(whole)


def test_reasoning_and_parallel_tools_and_their_results(qwen: Agents) -> None:
    qwen.stub.token_delay_s = 0.01  # tokens that arrive together leave together
    said = "<think>\ntwo sums\n</think>\n\nAdding.\n" + nested_calls({"a": 1}, {"a": 2})
    events, first = streamed(qwen, "say: " + said, tools=TOOLS)
    message = first.choices[0].message
    assert (message.content, message.model_dump()["reasoning_content"]) == ("Adding.", "two sums")
    calls = message.tool_calls or []
    assert [c.function.arguments for c in calls] == ['{"a": 1}', '{"a": 2}']
    assert len([e for e in events if e.type == "tool_calls.function.arguments.delta"]) > 4
    back = {"role": "assistant", "content": "Adding.", "tool_calls": [c.model_dump(exclude={"index"}) for c in calls]}
    for call in back["tool_calls"]:
        call["function"].pop("parsed_arguments", None)
    results = [{"role": "tool", "tool_call_id": c.id, "content": "3"} for c in calls]
    second = ask(qwen, "say: " + said, back, *results, {"role": "user", "content": "say: done"}, tools=TOOLS)
    before, after = qwen.turn(first), qwen.turn(second)
    assert (before.finish_reason, before.state) == (FinishReason.TOOL_CALLS, TurnState.JUDGING)
    assert [m["role"] for m in qwen.next_state(before.id)] == ["tool", "tool", "user"], "one next state"
    assert (after.session_id, after.parent_id) == (before.session_id, before.id)


@pytest.mark.parametrize("reasoning_sent_back", [False, True])
def test_a_tool_cycle_is_bridged_exactly(qwen: Agents, reasoning_sent_back: bool) -> None:
    said = "<think>\none sum\n</think>\n\n" + nested_calls({"a": 5})
    qwen.stub.reply = lambda prompt: "It is 5." if "<tool_response>" in prompt else said
    text = f"add five {reasoning_sent_back}"
    first = ask(qwen, text, tools=TOOLS)
    back = first.choices[0].message.model_dump(exclude_none=True)
    if not reasoning_sent_back:
        back.pop("reasoning_content")
    back["tool_calls"][0]["id"] = "rewritten"
    second = ask(qwen, text, back, {"role": "tool", "tool_call_id": "rewritten", "content": "5"}, tools=TOOLS)
    before, after = qwen.turn(first), qwen.turn(second)
    known = [*before.prompt_ids, *before.response_ids]
    assert after.bridged
    assert after.prompt_ids[: len(known)] == known
    assert after.prompt_ids == qwen.stub.sampled[-1][0]


def test_a_new_question_leaves_the_old_reasoning_out(qwen: Agents) -> None:
    first = ask(qwen, "say: <think>\nold\n</think>\n\nfour")
    back = first.choices[0].message.model_dump(exclude_none=True)
    second = ask(qwen, "say: <think>\nold\n</think>\n\nfour", back, {"role": "user", "content": "say: five"})
    after = qwen.turn(second)
    assert (after.bridged, after.parent_id) == (False, qwen.turn(first).id)
    assert "<think>\nold\n</think>\n\nfour<|im_end|>\n<|im_start|>user\nsay: five" not in qwen.stub.tokenizer.decode(
        after.prompt_ids, skip_special_tokens=False
    )


def test_reasoning_tokens_are_counted(qwen: Agents) -> None:
    answer = ask(qwen, "say: <think>\none two three\n</think>\n\nfour")
    assert answer.usage is not None
    details = answer.usage.completion_tokens_details
    assert details is not None
    assert 0 < (details.reasoning_tokens or 0) < answer.usage.completion_tokens


def test_log_probs_of_a_stream_are_all_those_of_the_answer(qwen: Agents) -> None:
    text = "say: <think>\nhm\n</think>\n\ndía 🤖\n" + nested_calls({"a": 1})
    whole = ask(qwen, text, logprobs=True, tools=TOOLS)
    chunks = list(ask(qwen, text, logprobs=True, tools=TOOLS, stream=True))  # type: ignore[call-overload]
    given = [t.logprob for c in chunks if c.choices[0].logprobs for t in c.choices[0].logprobs.content]
    assert whole.choices[0].logprobs is not None
    assert given == [t.logprob for t in whole.choices[0].logprobs.content or []] == qwen.turn(whole).logprobs


def test_errors_in_the_classes_of_the_sdk(qwen: Agents) -> None:
    with pytest.raises(openai.AuthenticationError):
        ask(Agents(qwen.url, "wrong", qwen.stub, qwen.journal, qwen.config), "hi")
    with pytest.raises(openai.NotFoundError):
        ask(qwen, "hi", extra_body={"model": "gpt"})
    with pytest.raises(openai.BadRequestError) as long:
        ask(qwen, "word " * 9000)
    assert long.value.code == "context_length_exceeded"


CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "1"}


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        (
            [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}]}],
            "audio",
        ),
        ([{"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}], "'file'"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,x"}}]}], "'image_url'"),
        ([RESULT], "not in the history"),
        ([{"role": "assistant", "tool_calls": [CALL]}, RESULT | {"tool_call_id": "c2"}], "not in the history"),
        ([{"role": "assistant", "tool_calls": [CALL, CALL]}, RESULT], "same id"),
    ],
)
def test_refused_messages(qwen: Agents, messages: list[Any], words: str) -> None:
    with pytest.raises(openai.BadRequestError, match=words):
        ask(qwen, "hi", *messages)


def test_two_clients_that_claim_one_session(qwen: Agents) -> None:
    one = qwen.client(**{"X-Session-Id": "shared", "User-Agent": "agent one"})
    two = qwen.client(**{"X-Session-Id": "shared", "User-Agent": "agent two"})
    hi: Any = [{"role": "user", "content": "say: hi there"}]
    sessions = []
    for client in (one, two, one, two):
        raw = client.chat.completions.with_raw_response.create(model="turnwise", messages=hi)
        sessions.append(raw.headers["x-turnwise-session-id"])
        hi = [*hi, {"role": "user", "content": "again"}]
    assert sessions[0] == sessions[2] == "shared"
    assert sessions[1] == sessions[3]
    assert sessions[1].startswith("shared~")


@pytest.mark.parametrize("session", ["a%0A", "a%20b", "%D0%BA", "x" * 300])
def test_a_session_in_the_url_that_is_none(qwen: Agents, session: str) -> None:
    body = {"model": "turnwise", "messages": [{"role": "user", "content": "hi"}]}
    answer = httpx.post(f"{qwen.url}/s/{session}/v1/chat/completions", headers=qwen.auth, json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "session")
