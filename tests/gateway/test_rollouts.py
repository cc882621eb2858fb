"""Rollouts over real HTTP: what a client says of one in headers, its outcome, and what is refused."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.conftest import Running
from tests.support.rows import turn_row
from tests.support.versions import new_turn
from turnwise.config import StreamsConfig
from turnwise.gateway.errors import ApiError
from turnwise.gateway.wire.rollouts import parse_outcome, read_rollout
from turnwise.types import Rollout, TurnKind

TERMINAL = {"X-Stream": "terminal", "X-Group-Id": "g", "X-Group-Size": "2"}


def ask(gateway: Running, messages: list[dict[str, Any]], headers: dict[str, str], **body: Any) -> httpx.Response:
    asked = {"model": "turnwise", "messages": messages} | body
    return httpx.post(f"{gateway.url}/v1/chat/completions", headers=gateway.auth | headers, json=asked, timeout=20)


def play(gateway: Running, session: str, steps: int = 2, size: str = "2") -> list[str]:
    """A rollout of some steps; its headers come with the first request alone. Gives its turns."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "list the files"}]
    turns: list[str] = []
    for n in range(steps):
        said = {"X-Session-Id": session} | (TERMINAL | {"X-Group-Size": size} if n == 0 else {})
        response = ask(gateway, messages, said)
        assert response.status_code == 200, response.text
        turns.append(response.headers["x-turnwise-turn-id"])
        messages += [response.json()["choices"][0]["message"], {"role": "user", "content": f"output {n}"}]
    return turns


def post(gateway: Running, session: str, body: Any, token: dict[str, str] | None = None) -> httpx.Response:
    given = body if isinstance(body, str) else None
    return httpx.post(
        f"{gateway.url}/v1/sessions/{session}/outcome",
        headers=gateway.person if token is None else token,
        content=given,
        json=None if given else body,
        timeout=20,
    )


def test_a_rollout_is_two_headers_and_a_post(gateway: Running) -> None:
    turns = play(gateway, "one")
    assert [turn_row(gateway.journal, turn).step for turn in turns] == [0, 1]
    answer = post(gateway, "one", {"outcome": 1})
    assert answer.status_code == 200, answer.text
    group = {"group_id": "g", "ended": 1, "size": 2, "state": "open", "why": None}
    assert answer.json() == {"id": "one", "outcome": 1.0, "failure": None, "steps": 2, "group": group}
    assert post(gateway, "one", {"outcome": 1.0}).json() == answer.json(), "posted again"
    assert gateway.journal.rollouts.owner("one") == Rollout("terminal", "g", "g", 2)


def test_rollouts_that_begin_alike_are_apart(gateway: Running) -> None:
    """The same words in eight sessions: none is taken for a retry or a branch of another."""
    turns = [play(gateway, f"r{i}", size="8") for i in range(8)]
    assert [[turn_row(gateway.journal, t).step for t in rollout] for rollout in turns] == [[0, 1]] * 8
    assert {turn_row(gateway.journal, t).session_id for rollout in turns for t in rollout} == {
        f"r{i}" for i in range(8)
    }


def test_an_agent_cannot_post_its_own_outcome(gateway: Running) -> None:
    play(gateway, "one")
    refused = post(gateway, "one", {"outcome": 1.0}, gateway.auth)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "wrong_scope")
    assert post(gateway, "one", {"outcome": 1.0}, gateway.admin).status_code == 200


def test_a_failure_of_the_machine_is_no_outcome(gateway: Running) -> None:
    turns = play(gateway, "one")
    assert post(gateway, "one", {"failure": "the container died"}).status_code == 200
    assert {turn_row(gateway.journal, turn).exclusion for turn in turns} == {"infrastructure failure"}


def test_a_rollout_gets_its_stream_s_temperature_and_limit_where_it_names_none(gateway: Running) -> None:
    said = {"X-Session-Id": "web", "X-Stream": "web"}
    first = ask(gateway, [{"role": "user", "content": "go"}], said)
    other = ask(gateway, [{"role": "user", "content": "stop"}], said | {"X-Session-Id": "w2"}, temperature=0.3)
    found = [turn_row(gateway.journal, r.headers["x-turnwise-turn-id"]).temperature for r in (first, other)]
    assert found == [0.8, 0.3]
    assert [one["max_tokens"] for one in gateway.stub.asked] == [1024, 1024]


def test_nobody_waits_for_a_step_so_it_keeps_no_training_window_shut() -> None:
    assert new_turn().by_person
    assert not new_turn(rollout=Rollout("web", "t", "g", 1)).by_person
    assert not new_turn(kind=TurnKind.SIDE).by_person


@pytest.mark.parametrize(
    ("session", "body", "status", "code"),
    [
        ("one", {"outcome": "1"}, 400, "invalid_value"),
        ("one", {"outcome": True}, 400, "invalid_value"),
        ("one", {"outcome": None}, 400, "invalid_value"),
        ("one", {"outcome": 1e7}, 400, "invalid_value"),
        ("one", {"outcome": 10**400}, 400, "invalid_value"),
        ("one", '{"outcome": NaN}', 400, "invalid_json"),
        ("one", '{"outcome": Infinity}', 400, "invalid_json"),
        ("one", '{"outcome": 1e999}', 400, "invalid_value"),
        ("one", {}, 400, "invalid_value"),
        ("one", {"outcome": 1, "failure": "both"}, 400, "invalid_value"),
        ("one", {"outcome": 1, "score": 1}, 400, "invalid_value"),
        ("one", {"failure": "  "}, 400, "invalid_value"),
        ("one", {"outcome": 1, "masked_steps": [-1]}, 400, "invalid_value"),
        ("one", {"outcome": 1, "masked_steps": [7]}, 400, "no_such_step"),
        ("one", [], 400, "invalid_json"),
        ("nobody", {"outcome": 1}, 404, "session_not_found"),
        ("person", {"outcome": 1}, 409, "not_a_rollout"),
        ("ended", {"outcome": 0.5}, 409, "other_outcome"),
        ("ended", {"failure": "no"}, 409, "other_outcome"),
    ],
    ids=str,
)
def test_what_is_no_outcome_is_refused_in_one_sentence(
    gateway: Running, session: str, body: Any, status: int, code: str
) -> None:
    play(gateway, "one")
    play(gateway, "ended")
    post(gateway, "ended", {"outcome": 1.0})
    ask(gateway, [{"role": "user", "content": "hi"}], {"X-Session-Id": "person"})
    refused = post(gateway, session, body)
    error = refused.json()["error"]
    assert (refused.status_code, error["code"]) == (status, code)
    assert error["message"] and "\n" not in error["message"]
    assert post(gateway, "one", {"outcome": 0.0}).status_code == 200, "nothing was taken"


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        (TERMINAL, 400, "no_session"),
        (TERMINAL | {"X-Session-Id": "n", "X-Stream": "chess"}, 400, "unknown_stream"),
        ({"X-Session-Id": "n", "X-Group-Id": "g"}, 400, "no_stream"),
        (TERMINAL | {"X-Session-Id": "n", "X-Group-Size": "0"}, 400, None),
        (TERMINAL | {"X-Session-Id": "n", "X-Group-Size": "-1"}, 400, None),
        (TERMINAL | {"X-Session-Id": "n", "X-Group-Size": "9" * 400}, 400, None),
        (TERMINAL | {"X-Session-Id": "n", "X-Group-Id": "a b"}, 400, None),
        (TERMINAL | {"X-Session-Id": "n", "X-Task-Id": ""}, 400, None),
        ({"X-Session-Id": "n", "X-Stream": "web", "X-Group-Size": "5"}, 400, None),
        (TERMINAL | {"X-Session-Id": "n", "X-Stream": "web"}, 409, "group_mismatch"),
        (TERMINAL | {"X-Session-Id": "n", "X-Group-Size": "3"}, 409, "group_mismatch"),
        (TERMINAL | {"X-Session-Id": "one", "User-Agent": "another"}, 409, "session_taken"),
    ],
    ids=str,
)
def test_headers_that_cannot_be_honoured_are_refused(
    gateway: Running, headers: dict[str, str], status: int, code: str | None
) -> None:
    play(gateway, "one")
    refused = ask(gateway, [{"role": "user", "content": "list the files"}], headers)
    assert (refused.status_code, refused.json()["error"]["code"]) == (status, code)


def test_a_full_group_and_a_rollout_that_ended_take_no_request(gateway: Running) -> None:
    play(gateway, "one")
    play(gateway, "two", steps=1)
    third = ask(gateway, [{"role": "user", "content": "list the files"}], TERMINAL | {"X-Session-Id": "three"})
    assert (third.status_code, third.json()["error"]["code"]) == (409, "group_full")
    post(gateway, "one", {"outcome": 1.0})
    again = ask(gateway, [{"role": "user", "content": "more"}], {"X-Session-Id": "one"})
    assert (again.status_code, again.json()["error"]["code"]) == (409, "rollout_ended")


def test_what_headers_say() -> None:
    streams = StreamsConfig()
    assert read_rollout({}, "s", streams) is None
    assert read_rollout({"x-stream": "personal"}, None, streams) is None
    assert read_rollout({"x-stream": "web"}, "s", streams) == Rollout("web", "s", "s", 1), "alone"
    grouped = {"x-stream": "web", "x-group-id": "g"}
    assert read_rollout(grouped, "s", streams) == Rollout("web", "g", "g", 5), "as many as its stream has"
    assert read_rollout(grouped | {"x-task-id": "t", "x-group-size": "7"}, "s", streams) == Rollout("web", "t", "g", 7)


def test_what_a_body_says() -> None:
    assert parse_outcome(b'{"outcome": -0.5, "masked_steps": [0, 2]}').masked == {0, 2}
    with pytest.raises(ApiError, match="from -1000000 to 1000000"):
        parse_outcome(b'{"outcome": -1000001}')


@pytest.mark.parametrize("size", ["00000000199999999999", "1" + "0" * 30, "0000000001"])
def test_a_group_size_of_many_digits_is_refused(size: str) -> None:
    with pytest.raises(ApiError, match="from 1 to 1024"):
        read_rollout({"x-stream": "web", "x-group-id": "g", "x-group-size": size}, "s", StreamsConfig())
