"""Rollouts that are announced, and how they let people go first."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import Running
from tests.gateway.test_rollouts import ask, post
from tests.support.rows import turn_row
from turnwise.gateway.turn.playing import LOOK_S, Playing, still_to_wait
from turnwise.journal import Journal
from turnwise.journal.rollouts.trajectories import name_of
from turnwise.schedule.traffic import Traffic, last_request
from turnwise.types import Rollout

GO = [{"role": "user", "content": "go"}]
SAID = {"stream": "terminal", "task": "t", "group": "g", "group_size": 2}


def announce(gateway: Running, session: str, said: Any, token: dict[str, str] | None = None) -> httpx.Response:
    url = f"{gateway.url}/v1/sessions/{session}/rollout"
    return httpx.post(url, headers=gateway.person if token is None else token, json=said, timeout=20)


def plain(gateway: Running, session: str, agent: str = "some agent", **body: Any) -> httpx.Response:
    """A request as an agent sends it that knows nothing of rollouts: the session stands in its URL."""
    url = f"{gateway.url}/s/{session}/v1/chat/completions"
    headers = gateway.auth | {"User-Agent": agent}
    return httpx.post(url, headers=headers, json={"model": "turnwise", "messages": GO} | body, timeout=20)


def test_an_agent_that_knows_nothing_of_rollouts_plays_one(gateway: Running) -> None:
    assert announce(gateway, "one", SAID).json()["group_id"] == "g"
    assert announce(gateway, "one", SAID).status_code == 200, "the same again"
    first = plain(gateway, "one")
    messages = [*GO, first.json()["choices"][0]["message"], {"role": "user", "content": "output"}]
    second = plain(gateway, "one", "another of its parts", messages=messages)
    rows = [turn_row(gateway.journal, r.headers["x-turnwise-turn-id"]) for r in (first, second)]
    assert [(row.session_id, row.step, row.temperature) for row in rows] == [("one", 0, 1.0), ("one", 1, 1.0)]
    assert gateway.journal.rollouts.owner("one") == Rollout("terminal", "t", "g", 2)
    done = post(gateway, "one", {"outcome": 1.0}).json()
    assert (done["steps"], done["group"]["ended"]) == (2, 1)


def test_a_step_that_is_asked_again_is_the_same_step_and_no_persons_request(gateway: Running) -> None:
    announce(gateway, "one", SAID)
    url, body = f"{gateway.url}/s/one/v1/chat/completions", {"model": "turnwise", "messages": GO}
    key = gateway.auth | {"Idempotency-Key": "a"}
    first = httpx.post(url, headers=key, json=body, timeout=20)
    asked = len(gateway.stub.asked)
    again = httpx.post(url, headers=key, json=body, timeout=20)
    assert again.headers["x-turnwise-turn-id"] == first.headers["x-turnwise-turn-id"]
    assert again.json()["choices"] == first.json()["choices"] and len(gateway.stub.asked) == asked, "as recorded"
    assert last_request(gateway.journal) is None, "nobody was here"
    assert announce(gateway, "one", SAID).json()["steps"] == 1
    assert post(gateway, "one", {"outcome": 1.0}).json()["steps"] == 1


def test_one_that_never_asked_ends_all_the_same(gateway: Running) -> None:
    for session in ("one", "two"):
        announce(gateway, session, SAID)
        told = post(gateway, session, {"failure": "it did not start"}).json()
    assert told["group"] == {"group_id": "g", "ended": 2, "size": 2, "state": "dropped", "why": told["group"]["why"]}


def test_one_that_was_lost_gives_its_place_to_another(gateway: Running) -> None:
    announce(gateway, "one", SAID)
    lost = plain(gateway, "one").headers["x-turnwise-turn-id"]
    assert announce(gateway, "again", SAID | {"instead_of": "one"}).status_code == 200
    assert announce(gateway, "again", SAID | {"instead_of": "one"}).status_code == 200, "the same again"
    assert turn_row(gateway.journal, lost).exclusion == "infrastructure failure"
    assert announce(gateway, "two", SAID).status_code == 200
    assert announce(gateway, "three", SAID).json()["error"]["code"] == "group_full"
    assert plain(gateway, "one").json()["error"]["code"] == "rollout_ended"
    post(gateway, "again", {"outcome": 1.0})
    refused = announce(gateway, "yet", SAID | {"instead_of": "again"})
    assert refused.json()["error"]["code"] == "rollout_ended", "what has its outcome is not lost"


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ({}, 400),
        ({"stream": "personal"}, 400),
        ({"stream": "chess"}, 400),
        ({"stream": "web", "reward": 1}, 400),
        ({"stream": "web", "group": "a b"}, 400),
        ({"stream": "web", "group": "g", "group_size": 0}, 400),
        ({"stream": "web", "instead_of": "a b"}, 400),
    ],
    ids=str,
)
def test_what_is_no_announcement_is_refused(gateway: Running, said: dict[str, Any], status: int) -> None:
    assert announce(gateway, "one", said).status_code == status


def test_an_agent_cannot_announce(gateway: Running) -> None:
    assert announce(gateway, "one", SAID, gateway.auth).json()["error"]["code"] == "wrong_scope"


# -- what a limit ended ---------------------------------------------------------------------------------------------


def played(gateway: Running, session: str, steps: int) -> tuple[list[str], httpx.Response]:
    """A rollout that makes a step more than it may; gives its turns and the refusal."""
    announce(gateway, session, {"stream": "terminal", "group": session, "group_size": 1})
    messages: list[dict[str, Any]] = list(GO)
    turns = []
    for n in range(steps):
        response = plain(gateway, session, messages=messages)
        turns.append(response.headers["x-turnwise-turn-id"])
        messages += [response.json()["choices"][0]["message"], {"role": "user", "content": f"output {n}"}]
    return turns, plain(gateway, session, messages=messages)


def test_a_rollout_that_a_limit_ended_is_masked_and_not_taken_for_a_bad_one(gateway: Running) -> None:
    turns, refused = played(gateway, "one", 10)
    assert refused.json()["error"]["code"] == "step_limit"
    for _ in range(2):
        told = post(gateway, "one", {"outcome": 0.0}).json()
        assert (told["outcome"], told["group"]["state"]) == (0.0, "dropped")
    assert {turn_row(gateway.journal, turn).exclusion for turn in turns} == {"its rollout was cut off before its end"}
    with gateway.journal.store.reading() as c:
        row = c.exec_driver_sql("SELECT outcome, failure FROM trajectories").one()
    assert tuple(row) == (None, "cut off: the limit of steps")


def test_one_that_goes_on_behind_a_full_context_was_not_cut_off(gateway: Running) -> None:
    announce(gateway, "one", {"stream": "terminal", "group": "g", "group_size": 1})
    first = plain(gateway, "one")
    long = plain(gateway, "one", messages=[{"role": "user", "content": "word " * 9000}])
    assert long.json()["error"]["code"] == "context_length_exceeded"
    second = plain(gateway, "one", messages=[{"role": "user", "content": "what was said, in short"}])
    assert post(gateway, "one", {"outcome": 1.0}).json()["group"]["state"] == "ready"
    steps = [turn_row(gateway.journal, r.headers["x-turnwise-turn-id"]).step for r in (first, second)]
    assert steps == [0, 1]


def test_a_limit_of_the_player_s_own_is_told_with_the_outcome(gateway: Running) -> None:
    ask(gateway, GO, {"X-Session-Id": "one", "X-Stream": "terminal"})
    assert post(gateway, "one", {"outcome": 0.0, "cut_off": "time"}).json()["group"]["state"] == "dropped"
    ask(gateway, GO, {"X-Session-Id": "two", "X-Stream": "terminal"})
    assert post(gateway, "two", {"failure": "x", "cut_off": "time"}).status_code == 400


# -- people first ---------------------------------------------------------------------------------------------------


@given(st.floats(0, 10), st.floats(0, 100), st.floats(0, 5), st.floats(1, 60))
def test_a_step_waits_for_a_person_and_never_longer_than_it_may(
    quiet: float, waited: float, pause: float, most: float
) -> None:
    wait = still_to_wait(quiet, waited, pause, most)
    assert 0 <= wait <= LOOK_S and waited + wait <= max(waited, most) + 1e-9
    if pause and quiet < pause and waited < most:
        assert wait > 0, "a person is here"
    else:
        assert wait == 0, "nobody is, or it has waited for long enough"


async def test_a_step_goes_on_when_the_person_has_been_quiet_for_a_while(journal: Journal) -> None:
    now, slept = [100.0], []
    done: Future[None] = Future()
    done.set_result(None)
    traffic = Traffic(lambda under_way: done, lambda: now[0])

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds
        if now[0] >= 103:
            traffic.ended("turn")

    playing = Playing(journal, traffic, lambda: now[0], sleep)
    await playing.give_way()
    assert not slept, "nobody is here"
    traffic.began("turn")
    await playing.give_way()
    assert 103 + journal.store.config.server.rollouts_pause_s <= now[0] < 105


async def test_a_step_does_not_wait_for_ever(journal: Journal) -> None:
    now = [100.0]
    done: Future[None] = Future()
    done.set_result(None)
    traffic = Traffic(lambda under_way: done, lambda: now[0])

    async def sleep(seconds: float) -> None:
        now[0] += seconds

    traffic.began("a long answer")
    await Playing(journal, traffic, lambda: now[0], sleep).give_way()
    assert now[0] - 100 == pytest.approx(journal.store.config.server.rollouts_wait_s)


def test_a_place_is_given_by_a_rollout_that_is_known_alone(gateway: Running) -> None:
    refused = announce(gateway, "two", SAID | {"instead_of": "one"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "no_such_rollout")
    for session in ("one", "one@home"):  # the second is no try of the first
        assert announce(gateway, session, SAID | {"group": "h"}).json()["steps"] == 0
    plain(gateway, "one@home")
    assert announce(gateway, "one@2", SAID | {"group": "h", "instead_of": "one"}).status_code == 200
    assert announce(gateway, "one@home", SAID | {"group": "h"}).json()["steps"] == 1, "it has its place still"
    assert announce(gateway, "x", SAID | {"instead_of": "one@home"}).json()["error"]["code"] == "no_such_rollout"


@pytest.mark.parametrize(
    ("session", "name"),
    [
        ("r.t.0@2", "r.t.0"),
        ("r@10", "r"),
        ("r@1", "r@1"),
        ("r@02", "r@02"),
        ("@2", "@2"),
        ("r@", "r@"),
        ("me@home", "me@home"),
        ("a@2@3", "a@2"),
    ],
)
def test_the_name_of_a_rollout_is_that_of_its_first_try(session: str, name: str) -> None:
    assert name_of(session) == name


def test_earlier_tries_of_one_that_was_lost_give_up_their_places_as_well(gateway: Running) -> None:
    """Its second player was lost before it said a word, so that the third one knows of the second alone."""
    announce(gateway, "one", SAID)
    assert announce(gateway, "one@3", SAID | {"instead_of": "one@2"}).status_code == 200
    assert announce(gateway, "two", SAID).status_code == 200, "of two places one is taken"
    for session in ("one@3", "two"):
        assert post(gateway, session, {"failure": "x"}).status_code == 200
    assert plain(gateway, "one").json()["error"]["code"] == "rollout_ended"
