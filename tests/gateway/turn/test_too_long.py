"""A prompt that does not fit is refused without a trace of its own; and what an upstream counts is what is recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import Running
from tests.gateway.relayed.test_upstream import in_front_of
from tests.support.raw_http import answer, sse
from turnwise.messages import text_of
from turnwise.types import Exclusion, TurnState

HI = {"role": "user", "content": "hi"}
LONG = {"role": "user", "content": "word " * 6000}


def post(gateway: Running, *messages: dict[str, Any], **headers: str) -> httpx.Response:
    body = {"model": "turnwise", "messages": messages}
    return httpx.post(f"{gateway.url}/v1/chat/completions", headers=gateway.auth | headers, json=body, timeout=20)


@pytest.mark.parametrize("headers", [{}, {"X-Session-Id": "mine"}])
def test_it_opens_no_session_and_is_no_failure(gateway: Running, headers: dict[str, str]) -> None:
    refused = post(gateway, LONG, **headers)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert gateway.journal.sessions.last_seen() == []
    status = gateway.journal.status.figures()
    assert (status["excluded"], sum(status["turns"].values())) == ({}, 0)
    assert gateway.journal.turns.recover_interrupted() == 0, "nothing is left in hand"


def test_what_it_says_of_the_answer_before_is_kept(gateway: Running) -> None:
    first = post(gateway, HI)
    said = first.json()["choices"][0]["message"]
    for _ in range(2):  # a client that tries again
        assert post(gateway, HI, said, LONG).status_code == 400
    [session] = gateway.journal.sessions.last_seen()
    assert session["turns"] == 1
    before = gateway.turn(first.headers["x-turnwise-turn-id"])
    assert before.state is TurnState.JUDGING
    [task] = gateway.journal.judging.claim("judge", 1, 60)
    assert [text_of(m) for m in task.next_state] == [LONG["content"]]
    shorter = post(gateway, HI, said, {"role": "user", "content": "shorter"})
    assert shorter.headers["x-turnwise-session-id"] == session["id"]


def test_a_client_that_is_done_is_done(gateway: Running) -> None:
    said = post(gateway, HI, **{"X-Session-Id": "mine"}).json()["choices"][0]["message"]
    assert post(gateway, HI, said, LONG, **{"X-Session-Id": "mine", "X-Session-Done": "true"}).status_code == 400
    [session] = gateway.journal.sessions.last_seen()
    assert (session["id"], session["close_reason"]) == ("mine", "the client said it is done")


async def test_an_upstream_that_says_so_did_not_fail(tmp_path: Path) -> None:
    said = {"error": {"message": "This model's maximum context length is 8 tokens", "code": "context_length_exceeded"}}
    async with in_front_of(tmp_path, answer(400, said)) as fronted:
        assert (await fronted.ask()).status_code == 400
        assert fronted.journal.status.figures()["excluded"] == {Exclusion.TOO_LONG: 1}


@pytest.mark.parametrize("stream", [False, True])
async def test_an_upstreams_turns_carry_its_own_count(tmp_path: Path, stream: bool) -> None:
    usage = {"prompt_tokens": 1234, "completion_tokens": 56, "total_tokens": 1290}
    parts = sse({"choices": [{"delta": {"content": "yes"}, "finish_reason": "stop"}]}, {"choices": [], "usage": usage})
    async with in_front_of(tmp_path, parts) as fronted:
        await fronted.ask(stream=stream)
        [row] = fronted.journal.sessions.last_seen()
        [turn] = (fronted.journal.sessions.show(row["id"]) or {})["turns"]
        assert (turn["prompt_tokens"], turn["response_tokens"]) == (1234, 56)
        again = await fronted.client.post(
            "/v1/chat/completions",
            json={"model": "turnwise", "messages": [HI]},
            headers={"X-Stainless-Retry-Count": "1"},
        )
        assert {name: again.json()["usage"][name] for name in usage} == usage
        assert len(fronted.asked()) == 1, "the retry is answered from the record"
        assert (
            fronted.journal.verdicts.feedback(turn["id"], 1, None)
            and fronted.journal.status.figures()["samples_ready"] == 0
        )
