"""The token of one rollout opens that rollout's session, and nothing can be done with it anywhere else."""

from __future__ import annotations

import httpx
import pytest

from tests.conftest import Running
from tests.gateway.test_playing import GO, SAID, announce
from tests.gateway.test_rollouts import post
from turnwise.access_tokens import rollout_token
from turnwise.types import Rollout

CHAT = "/v1/chat/completions"


def own(gateway: Running, session: str) -> dict[str, str]:
    person = gateway.person["Authorization"].removeprefix("Bearer ")
    return {"Authorization": f"Bearer {rollout_token(person, session)}"}


def ask(gateway: Running, way: str, headers: dict[str, str], **body: object) -> httpx.Response:
    asked = {"model": "turnwise", "messages": GO} | body
    return httpx.post(f"{gateway.url}{way}", headers=headers, json=asked, timeout=20)


def sessions(gateway: Running) -> set[str]:
    return {row["id"] for row in gateway.journal.sessions.last_seen()}


def test_a_rollout_is_played_with_its_own_token(gateway: Running) -> None:
    announce(gateway, "one", SAID)
    answer = ask(gateway, f"/s/one{CHAT}", own(gateway, "one"))
    assert answer.status_code == 200 and answer.headers["x-turnwise-session-id"] == "one"
    models = httpx.get(f"{gateway.url}/s/one/v1/models", headers=own(gateway, "one"), timeout=20)
    assert models.status_code == 200
    assert post(gateway, "one", {"outcome": 1.0}).json()["steps"] == 1


@pytest.mark.parametrize(
    "way", [f"/s/two{CHAT}", CHAT, "/v1/responses", "/v1/messages", "/s/one%2F..%2Ftwo/v1/chat/completions"]
)
def test_it_asks_in_no_other_session_whatever_names_that(gateway: Running, way: str) -> None:
    for session in ("one", "two"):
        announce(gateway, session, SAID)
    for more in ({}, {"X-Session-Id": "two"}, {"X-Session-Id": "one"}, {"X-Stream": "personal"}):
        answer = ask(gateway, way, own(gateway, "one") | more)
        assert answer.status_code in (401, 403), answer.text
    assert sessions(gateway) == set() and gateway.stub.asked == []


def test_what_names_another_session_beside_the_address_does_not_count(gateway: Running) -> None:
    announce(gateway, "one", SAID)
    announce(gateway, "two", SAID | {"group": "h"})
    theirs = ask(gateway, f"/s/two{CHAT}", own(gateway, "two")).headers["x-turnwise-turn-id"]
    mine = own(gateway, "one")
    for more in (
        {"X-Session-Id": "two"},
        {"X-Stream": "swe", "X-Group-Id": "h", "X-Task-Id": "t"},
        {"X-Stream": "terminal", "X-Task-Id": "t", "X-Group-Id": "h", "X-Group-Size": "2"},
    ):
        answer = ask(gateway, f"/s/one{CHAT}", mine | more, messages=[*GO, *GO])
        assert answer.status_code == 200 and answer.headers["x-turnwise-session-id"] == "one"
    assert gateway.journal.rollouts.owner("one") == Rollout("terminal", "t", "g", 2)
    asked = {"model": "turnwise", "input": "go on", "previous_response_id": theirs}
    refused = httpx.post(f"{gateway.url}/s/one/v1/responses", headers=mine, json=asked, timeout=20)
    assert refused.status_code == 400, "nobody else's answer is gone on with"
    assert sessions(gateway) == {"one", "two"}


def test_without_an_announced_rollout_it_is_nobodys_conversation(gateway: Running) -> None:
    refused = ask(gateway, f"/s/one{CHAT}", own(gateway, "one"))
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "no_such_rollout")
    announced = own(gateway, "one") | {"X-Stream": "terminal"}
    assert ask(gateway, f"/s/one{CHAT}", announced).status_code == 403
    assert sessions(gateway) == set()


def test_it_is_over_with_the_rollout(gateway: Running) -> None:
    announce(gateway, "one", SAID)
    ask(gateway, f"/s/one{CHAT}", own(gateway, "one"))
    post(gateway, "one", {"outcome": 1.0})
    late = ask(gateway, f"/s/one{CHAT}", own(gateway, "one"), messages=[*GO, *GO])
    assert (late.status_code, late.json()["error"]["code"]) == (409, "rollout_ended")


@pytest.mark.parametrize(
    ("way", "body"),
    [
        ("/v1/sessions/one/close", {}),
        ("/v1/sessions/two/close", {}),
        ("/v1/sessions/one/outcome", {"outcome": 1.0}),
        ("/v1/sessions/one/rollout", SAID),
    ],
)
def test_it_ends_and_rewards_nothing(gateway: Running, way: str, body: dict[str, object]) -> None:
    announce(gateway, "one", SAID)
    refused = httpx.post(f"{gateway.url}{way}", headers=own(gateway, "one"), json=body, timeout=20)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "wrong_scope")


def test_it_gives_no_feedback_and_sees_no_figures(gateway: Running) -> None:
    announce(gateway, "one", SAID)
    turn = ask(gateway, f"/s/one{CHAT}", own(gateway, "one")).headers["x-turnwise-turn-id"]
    headers = own(gateway, "one")
    given = httpx.post(f"{gateway.url}/v1/turns/{turn}/feedback", headers=headers, json={"score": 1}, timeout=20)
    seen = [httpx.get(f"{gateway.url}{way}", headers=headers, timeout=20) for way in ("/v1/status", "/metrics")]
    assert [each.status_code for each in (given, *seen)] == [403, 403, 403]


def test_another_key_is_none(gateway: Running) -> None:
    announce(gateway, "one", SAID)
    made_up = {"Authorization": f"Bearer {rollout_token(gateway.token, 'one')}"}
    assert ask(gateway, f"/s/one{CHAT}", made_up).status_code == 403
