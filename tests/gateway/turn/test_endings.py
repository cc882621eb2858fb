"""How answers and sessions end, in every format: a client that hangs up, one that says it is done, two alike."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.gateway.callers import FORMATS, Caller, user
from tests.gateway.conftest import Agents
from tests.gateway.encoders import Habits
from tests.support.servers import wait_until
from turnwise.messages import text_of, to_chat
from turnwise.types import Exclusion, TurnState

WORDS = " ".join("abcdefghijklmnopqrstuvwxyz")


async def hang_up(url: str, headers: dict[str, str], asked: dict[str, Any], reached: Callable[[], bool]) -> None:
    """Ask, and go away a second after the engine has begun."""
    async with httpx.AsyncClient(timeout=60) as client:
        waiting = asyncio.create_task(client.post(url, headers=headers, json=asked))
        await asyncio.to_thread(wait_until, reached)
        await asyncio.sleep(1.0)
        assert waiting.cancel(), "it has not answered yet"
        with pytest.raises(asyncio.CancelledError):
            await waiting


@pytest.mark.parametrize("seen", ["whole", "nothing", "a piece"])
@pytest.mark.parametrize("name", FORMATS)
def test_a_client_that_hangs_up_aborts_its_turn(qwen: Agents, name: str, seen: str) -> None:
    """Waiting for a whole answer, before the first event of a stream, and in the middle of one."""
    path, body, _ = FORMATS[name]
    session, stub = f"gone-{name}-{'-'.join(seen.split())}", qwen.stub
    cancelled, ready = stub.cancelled, qwen.journal.status.figures()["samples_ready"]
    stub.token_delay_s = 60.0 if seen == "nothing" else 0.2
    asked = body([user(f"say: {WORDS}")], Habits()) | {"stream": seen != "whole"}
    headers = qwen.auth | {"X-Session-Id": session}
    if seen == "a piece":
        with httpx.stream("POST", f"{qwen.url}{path}", headers=headers, json=asked, timeout=20) as response:
            next(response.iter_lines())
    else:
        reached = len(stub.sampled)
        asyncio.run(hang_up(f"{qwen.url}{path}", headers, asked, lambda: len(stub.sampled) > reached))
    shown = wait_until(lambda: (s := qwen.journal.sessions.show(session)) and s["turns"][0]["answer"] and s)
    [turn] = shown["turns"]
    assert (turn["state"], turn["exclusion"]) == (TurnState.EXCLUDED, Exclusion.ABORTED)
    assert (turn["finish_reason"], turn["response_tokens"] > 0) == ("abort", seen != "nothing")
    wait_until(lambda: stub.cancelled == cancelled + 1)  # the engine stopped computing
    refused = httpx.post(f"{qwen.url}/v1/turns/{turn['id']}/feedback", headers=qwen.person, json={"score": 1})
    assert "already aborted" in refused.text, "not even a person's score makes a sample of it"
    assert qwen.journal.status.figures()["samples_ready"] == ready


def test_the_head_of_a_stream_and_its_first_words_are_one_piece(qwen: Agents) -> None:
    """Each piece is a write of its own, which costs the gateway more than making it."""
    path, body, _ = FORMATS["chat"]
    asked = body([user("say: at once")], Habits()) | {"stream": True}
    with httpx.stream("POST", f"{qwen.url}{path}", headers=qwen.auth, json=asked) as response:
        first = next(response.iter_raw())
    assert b'"role":"assistant"' in first
    assert b'"content":"at' in first


@pytest.mark.parametrize("said", ["", "That is all."], ids=["empty", "words"])
def test_a_request_that_says_it_is_done_ends_its_session(
    caller: Caller, said: str, request: pytest.FixtureRequest
) -> None:
    session = f"done-{request.node.callspec.id.replace(' ', '-')}"
    headers = {"X-Session-Id": session}
    first = caller.ask([user("say: first")], headers=headers)
    history = [user("say: first"), to_chat(first.answer), user(f"say: {said}")]
    last = caller.ask(history, headers=headers | {"X-Session-Done": "true"})
    assert text_of(last.answer) == said
    shown = caller.gateway.journal.sessions.show(session)
    assert shown is not None
    assert (shown["close_reason"], shown["closed_at"] is None) == ("the client said it is done", False)
    # An answer that says nothing is still one: the engine sampled the end of the turn.
    assert [(t["state"], t["exclusion"]) for t in shown["turns"]] == [
        (TurnState.JUDGING, None),
        (TurnState.EXCLUDED, Exclusion.NO_NEXT_STATE),
    ]
    assert [m["content"] for m in shown["turns"][0]["next_state"]] == [f"say: {said}"]


def test_a_session_that_is_not_done_stays_open(caller: Caller, request: pytest.FixtureRequest) -> None:
    session = f"open-{request.node.callspec.id}"
    turn = caller.ask([user("say: ")], headers={"X-Session-Id": session, "X-Session-Done": "false"})
    shown = caller.gateway.journal.sessions.show(session)
    assert shown is not None and shown["closed_at"] is None
    assert turn.state is TurnState.WAITING


def test_the_same_words_are_two_sessions_and_each_goes_on_in_its_own(
    caller: Caller, request: pytest.FixtureRequest
) -> None:
    """Of one client begun twice, and of clients with another name or another way to say the token."""
    asked = [user(f"say: the same for {request.node.callspec.id}")]
    agents = [{"User-Agent": name} for name in ("one/1", "one/1", "other/1", "third/1")]
    turns = [caller.ask(asked, headers=headers) for headers in agents]
    assert len({turn.session_id for turn in turns}) == 4
    # What the third client was answered, as the others were: each goes on with its own.
    history = [*asked, to_chat(turns[2].answer), user("say: go on")]
    for headers, turn in list(zip(agents, turns, strict=True))[2:]:
        follow = caller.ask(history, headers=headers)
        assert (follow.session_id, follow.parent_id) == (turn.session_id, turn.id)
    stranger = caller.ask(history, headers={"User-Agent": "stranger/1"})
    assert stranger.session_id not in {turn.session_id for turn in turns}
    assert stranger.parent_id is None
