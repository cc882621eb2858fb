"""The same conversation held again by the same client with the same answers (temperature 0, a benchmark, a batch job):
each run has its own turns, and each of them its next state.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.conftest import Running
from tests.gateway.lineage.test_sessions_api import next_state, session_of, user
from tests.support.wire import ChatMessage
from turnwise.messages import history_to_chat
from turnwise.types import Exclusion

ASKED = ("say: Yes.", "say: Why, because it is so and not otherwise.", "say: Then.", "thanks")
FEW_SHOTS = [user("I love it"), {"role": "assistant", "content": "positive"}]


def held(gateway: Running, begins: list[ChatMessage], *, key: str | None = None, **headers: str) -> Iterator[str]:
    """A conversation, a turn each step; yields the turns' ids."""
    history = list(begins)
    for text in ASKED:
        history.append(user(text))
        body: dict[str, Any] = {"model": "turnwise", "messages": history, "temperature": 0}
        body |= {} if key is None else {"prompt_cache_key": key}
        url = f"{gateway.url}/v1/chat/completions"
        response = httpx.post(url, headers=gateway.auth | headers, json=body, timeout=60)
        assert response.status_code == 200, response.text
        history.append(response.json()["choices"][0]["message"])
        yield response.headers["x-turnwise-turn-id"]


def check_run(gateway: Running, turns: list[str]) -> None:
    """A whole conversation of its own."""
    reactions = [next_state(gateway, turn) for turn in turns]
    assert [[m["content"] for m in state] for state in reactions[:-1]] == [[text] for text in ASKED[1:]]
    assert reactions[-1] is None
    assert [gateway.turn(turn).parent_id for turn in turns] == [None, *turns[:-1]]
    assert Exclusion.SUPERSEDED not in {gateway.turn(turn).exclusion for turn in turns}


@pytest.mark.parametrize("begins", [[], FEW_SHOTS], ids=["from nothing", "from examples"])
@pytest.mark.parametrize("key", [None, "app"], ids=["no key", "a shared key"])
def test_a_second_run_is_a_session_of_its_own(gateway: Running, begins: list[ChatMessage], key: str | None) -> None:
    runs = [list(held(gateway, begins, key=key)) for _ in range(3)]
    for turns in runs:
        check_run(gateway, turns)
    sessions = [{session_of(gateway, turn) for turn in turns} for turns in runs]
    assert [len(found) for found in sessions] == [1, 1, 1]
    assert len(set.union(*sessions)) == 3


def test_a_second_run_under_the_sessions_own_name_has_all_its_next_states(gateway: Running) -> None:
    for _ in range(2):
        turns = list(held(gateway, [], **{"X-Session-Id": "mine"}))
        check_run(gateway, turns)
        assert {session_of(gateway, turn) for turn in turns} == {"mine"}


def test_a_second_run_after_the_first_was_closed_or_is_long_ago(gateway: Running) -> None:
    first = list(held(gateway, []))
    gateway.journal.sessions.close(session_of(gateway, first[0]), "idle")
    with gateway.journal.store.transaction() as c:
        c.exec_driver_sql("UPDATE turns SET begun_mono = begun_mono - 4000")
    second = list(held(gateway, []))
    check_run(gateway, second)
    assert session_of(gateway, second[0]) != session_of(gateway, first[0])


def test_runs_side_by_side_each_have_all_their_next_states(gateway: Running) -> None:
    """More of them than turns of one history are looked at; which run a reaction is of, nobody can tell."""
    runs = [held(gateway, []) for _ in range(23)]
    steps = [[next(run) for run in runs] for _ in range(2)]
    assert {state[0]["content"] for state in (next_state(gateway, turn) for turn in steps[0])} == {ASKED[1]}
    assert len({gateway.turn(turn).parent_id for turn in steps[1]}) == 23


def test_a_regenerated_answer_of_the_second_run_takes_its_place_there(gateway: Running) -> None:
    first, second = list(held(gateway, [])), list(held(gateway, []))
    history: list[ChatMessage] = []
    for turn in second[:-1]:
        shown = gateway.journal.lookups.turn(turn)
        assert shown is not None
        history = history_to_chat([*gateway.turn(turn).messages, gateway.turn(turn).answer])
    body = {"model": "turnwise", "messages": [*history, user(ASKED[-1])], "temperature": 0}
    url = f"{gateway.url}/v1/chat/completions"
    response = httpx.post(url, headers=gateway.auth, json=body, timeout=60)
    assert response.headers["x-turnwise-lineage"] == "regenerated"
    assert response.headers["x-turnwise-session-id"] == session_of(gateway, second[-1])
    assert gateway.turn(second[-1]).exclusion is Exclusion.SUPERSEDED
    assert gateway.turn(first[-1]).exclusion is not Exclusion.SUPERSEDED


def test_a_retry_beside_an_earlier_run_is_a_retry(gateway: Running) -> None:
    """The SDK's count within the window: the answer from the record, though another run had the same request."""
    run = held(gateway, [], **{"Idempotency-Key": "k"})
    first = next(run)
    again = next(held(gateway, [], **{"Idempotency-Key": "k"}))
    counted = next(held(gateway, [], **{"x-stainless-retry-count": "1"}))
    assert first == again == counted
