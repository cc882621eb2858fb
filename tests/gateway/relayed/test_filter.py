"""An answer that an upstream's content filter ended says so in every format, is recorded, and is never judged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gateway.relayed.test_upstream import Fronted, in_front_of
from tests.support.raw_http import Part, sse
from turnwise.types import Exclusion, FinishReason, TurnState

FILTERED = sse({"choices": [{"delta": {"content": "I can"}}]}, {"choices": [{"finish_reason": "content_filter"}]})
REFUSED = sse(
    {"type": "message_start", "message": {"usage": {"input_tokens": 3, "output_tokens": 0}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "I can"}},
    {"type": "message_delta", "delta": {"stop_reason": "refusal"}, "usage": {"output_tokens": 2}},
)
SILENT = sse({"choices": [{"delta": {}, "finish_reason": "content_filter"}]})
UPSTREAMS = pytest.mark.parametrize(
    ("api", "said"), [("openai", FILTERED), ("anthropic", REFUSED), ("openai", SILENT)], ids=["openai", "anthropic", ""]
)


def ending(path: str, response: httpx.Response, stream: bool) -> Any:
    """What a whole or a streamed answer says of its end."""
    assert response.status_code == 200
    lines = (line[5:].strip() for line in response.text.splitlines() if line.startswith("data:"))
    bodies = [json.loads(line) for line in lines if line != "[DONE]"] if stream else [response.json()]
    if path == "chat/completions":
        return bodies[-1]["choices"][0]["finish_reason"]
    if path == "messages":
        return bodies[-2]["delta"]["stop_reason"] if stream else bodies[0]["stop_reason"]
    body = bodies[-1]["response"] if stream else bodies[0]
    assert not stream or bodies[-1]["type"] == "response.incomplete"
    return (body["status"], body["incomplete_details"])


def turn_of(fronted: Fronted, response: httpx.Response) -> Any:
    return fronted.journal.turns.get(response.headers["x-turnwise-turn-id"])


@UPSTREAMS
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("chat/completions", "content_filter"),
        ("responses", ("incomplete", {"reason": "content_filter"})),
        ("messages", "refusal"),
    ],
)
async def test_a_filtered_answer_says_so(
    tmp_path: Path, api: str, said: list[Part], stream: bool, path: str, told: Any
) -> None:
    async with in_front_of(tmp_path, said, api=api) as fronted:
        limit = {"max_tokens": 9} if path == "messages" else {}
        answered = await fronted.ask(path, stream=stream, **limit)
        assert ending(path, answered, stream) == told
        assert turn_of(fronted, answered).finish_reason is FinishReason.CONTENT_FILTER


@UPSTREAMS
async def test_a_filtered_answer_is_never_judged(tmp_path: Path, api: str, said: list[Part]) -> None:
    async with in_front_of(tmp_path, said, api=api) as fronted:
        first = await fronted.ask()
        history = [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": first.json()["choices"][0]["message"]["content"]},
            {"role": "user", "content": "No, that is wrong."},
        ]
        await fronted.ask(messages=history)
        turn = turn_of(fronted, first)
        assert (turn.state, turn.exclusion) == (TurnState.EXCLUDED, Exclusion.CONTENT_FILTER)
        assert fronted.journal.judging.claim("judge", 9, 60.0) == []


async def test_a_retry_is_given_the_filtered_answer_again(tmp_path: Path) -> None:
    async with in_front_of(tmp_path, FILTERED) as fronted:
        fronted.client.headers["idempotency-key"] = "one"
        first = await fronted.ask()
        again = await fronted.ask()
    assert again.json()["choices"] == first.json()["choices"]


async def test_a_cut_tool_call_of_a_filtered_answer_does_not_hide_the_filter(tmp_path: Path) -> None:
    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": '{"a"'}}
    said = sse({"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": "content_filter"}]})
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    async with in_front_of(tmp_path, said) as fronted:
        answered = await fronted.ask(tools=[tool])
    assert ending("chat/completions", answered, False) == "content_filter"
