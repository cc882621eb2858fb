"""Several answers, log-probs and biased tokens in front of an upstream: asked of it and given back as they came."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from tests.gateway.relayed.test_upstream import Fronted, in_front_of
from tests.support.raw_http import sse
from turnwise.engines.upstream.conversation import ChatParams
from turnwise.engines.upstream.openai_api import OpenAIWire
from turnwise.gateway.wire.chat.choices import joined
from turnwise.messages import saying, text_of

ASKED: dict[str, Any] = {"n": 3, "logprobs": True, "top_logprobs": 1, "logit_bias": {"5": 1.0}}


def token(text: str) -> dict[str, Any]:
    best = {"token": text, "logprob": -0.5, "bytes": list(text.encode())}
    return best | {"top_logprobs": [best]}


def choice(index: int, finish: str | None = None, call: dict[str, Any] | None = None, text: str = "") -> Any:
    delta = {"content": text} if text else {"tool_calls": [call]} if call else {}
    logprobs = {"content": [token(text)], "refusal": None} if text else None
    return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}


def call(name: str | None, arguments: str) -> dict[str, Any]:
    head = {"id": "call_theirs", "type": "function"} if name else {}
    return head | {"index": 0, "function": {"arguments": arguments} | ({"name": name} if name else {})}


BEGINS: dict[str, Any] = {"delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
EVENTS: list[dict[str, Any]] = [
    *({"choices": [{"index": index, **BEGINS}]} for index in range(3)),
    {"choices": [choice(0, text="One"), choice(1, text="Two")]},
    {"choices": [choice(1, text=" and"), choice(0, text=" here")]},
    {"choices": [choice(0, "stop")]},
    {"choices": [choice(2, call=call("look_up", '{"a"'))]},
    {"choices": [choice(2, call=call(None, ": 1}"))]},
    {"choices": [choice(1, "stop")]},
    {"choices": [choice(2, "tool_calls")]},
    {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 9}},
]


def asked(fronted: Fronted, stream: bool, **headers: str) -> Any:
    """What OpenAI's client makes of the answer."""
    token = str(fronted.client.headers["authorization"]).removeprefix("Bearer ")
    client = OpenAI(base_url=f"{fronted.client.base_url}/v1", api_key=token, max_retries=0, default_headers=headers)
    tool: Any = {"type": "function", "function": {"name": "look.up", "parameters": {"type": "object"}}}
    more: Any = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": [tool], **ASKED}
    if not stream:
        return client.chat.completions.create(**more)
    with client.chat.completions.stream(**more) as events:
        for _ in events:
            pass
        return events.get_final_completion()


@pytest.mark.parametrize("stream", [False, True])
async def test_all_choices_come_back_as_they_were_given(tmp_path: Path, stream: bool) -> None:
    async with in_front_of(tmp_path, sse(*EVENTS)) as fronted:
        answer = await asyncio.to_thread(asked, fronted, stream)
        (body,) = fronted.asked()
        turn = fronted.journal.turns.get(answer.id.removeprefix("chatcmpl-"))
    assert {name: body[name] for name in ASKED} == ASKED
    first, second, third = answer.choices
    assert [choice.finish_reason for choice in answer.choices] == ["stop", "stop", "tool_calls"]
    assert (first.message.content, second.message.content) == ("One here", "Two and")
    for given, texts in ((first, ["One", " here"]), (second, ["Two", " and"])):
        tokens = given.logprobs.content
        assert [(one.token, one.top_logprobs[0].logprob) for one in tokens] == [(text, -0.5) for text in texts]
    [made] = third.message.tool_calls
    assert (made.id, made.function.name, made.function.arguments) == ("call_theirs", "look.up", '{"a": 1}')
    assert turn is not None and turn.answer is not None
    assert text_of(turn.answer) == "One here", "the first is the turn's answer"


async def test_a_choice_that_breaks_off_is_no_answer(tmp_path: Path) -> None:
    async with in_front_of(tmp_path, sse(*EVENTS[:6])) as fronted:
        broken = await fronted.ask(n=2)
        assert broken.status_code == 502, broken.text


@pytest.mark.parametrize("spoilt", [{"delta": {"content": 5}}, {"logprobs": "many"}, {"index": "one"}, {"delta": None}])
async def test_a_piece_that_no_client_could_read_is_no_answer(tmp_path: Path, spoilt: dict[str, Any]) -> None:
    async with in_front_of(tmp_path, sse({"choices": [choice(1, text="Two") | spoilt]})) as fronted:
        broken = await fronted.ask(n=2)
        assert broken.status_code == 502, broken.text


@pytest.mark.parametrize(("name", "value"), [("n", 2), ("logit_bias", {"5": 1}), ("top_logprobs", 3)])
async def test_an_api_without_a_word_for_it_refuses_by_name(tmp_path: Path, name: str, value: Any) -> None:
    async with in_front_of(tmp_path, sse(*EVENTS), api="anthropic") as fronted:
        refused = await fronted.ask(**{name: value})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, name)
        assert fronted.asked() == []


async def test_a_retry_gets_all_choices_although_the_record_has_one(tmp_path: Path) -> None:
    async with in_front_of(tmp_path, sse(*EVENTS), sse(*EVENTS)) as fronted:
        answers = [await asyncio.to_thread(asked, fronted, False, **{"Idempotency-Key": "one"}) for _ in range(2)]
    assert [len(answer.choices) for answer in answers] == [3, 3]
    assert answers[1].choices[0].logprobs is not None


def test_a_piece_without_a_delta_and_log_probs_nobody_asked_for_change_nothing() -> None:
    wire = OpenAIWire()
    wire.body([saying("user", "hi")], None, ChatParams(as_given={"n": 2}), "m")
    odd = {
        "choices": [
            {"index": 0, "delta": {"content": "a"}, "logprobs": {"n": 1}},
            {"index": 1, "finish_reason": "stop"},
        ]
    }
    event = wire.read(odd)
    assert event is not None and event.text == "a"
    assert [choice["index"] for choice in joined(event.given)[1]] == [1]
