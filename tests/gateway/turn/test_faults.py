"""The gateway when what it stands on fails: a full disk, an adapter that cannot be loaded, missing log-probs."""

from __future__ import annotations

import json
import random
import string
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from sqlalchemy import Connection, Engine, event

from tests.conftest import Running
from tests.gateway.lineage.test_sessions_api import next_state, say, session_of, user
from tests.support.servers import wait_until
from tests.support.versions import publish
from turnwise.tokens.chatml import ChatMLRenderer
from turnwise.tokens.rendering import PromptRenderer
from turnwise.types import Exclusion, TurnState


def noise(length: int) -> str:
    """Text that cannot be packed, so that the file has to grow for it."""
    return "".join(random.choices(string.ascii_letters + string.digits, k=length))


@pytest.fixture
def disk() -> Iterator[dict[str, bool]]:
    """A switch: while `full`, SQLite may not make the journal larger than it is."""
    state = {"full": False}

    def limit(connection: Connection) -> None:
        connection.exec_driver_sql(f"PRAGMA max_page_count = {1 if state['full'] else 1 << 30}")

    event.listen(Engine, "begin", limit)
    yield state
    event.remove(Engine, "begin", limit)


def post(gateway: Running, body: dict[str, Any], path: str = "/v1/chat/completions") -> httpx.Response:
    return httpx.post(f"{gateway.url}{path}", headers=gateway.auth, json=body, timeout=20)


def test_a_request_that_cannot_be_recorded_is_not_answered(disk: dict[str, bool], gateway: Running) -> None:
    before, _, _ = say(gateway, [user("hi")])
    disk["full"] = True
    # What the file still has room for is answered.
    responses = (post(gateway, {"model": "turnwise", "messages": [user(noise(3000))]}) for _ in range(30))
    response = next(r for r in responses if r.status_code != 200)
    assert response.status_code == 507, response.text
    assert response.json()["error"]["type"] == "insufficient_storage_error"
    assert "full" in response.json()["error"]["message"]
    asked = len(gateway.stub.sampled)
    disk["full"] = False
    assert gateway.journal.turns.get(before).state is TurnState.WAITING
    say(gateway, [user("hi again")])
    assert len(gateway.stub.sampled) == asked + 1, "the refused request did not reach the engine"


def stream_until_full(gateway: Running, disk: dict[str, bool]) -> tuple[str, list[str]]:
    """One streamed answer during which the disk becomes full: its turn and its lines."""
    disk["full"] = False
    body = {"model": "turnwise", "messages": [user("say: " + noise(1500))], "stream": True}
    url, lines = f"{gateway.url}/v1/chat/completions", []
    with httpx.stream("POST", url, headers=gateway.auth, json=body, timeout=30) as response:
        for line in response.iter_lines():
            disk["full"] = True
            lines.append(line)
        return response.headers["x-turnwise-turn-id"], lines


def test_an_answer_that_cannot_be_recorded_has_no_end(disk: dict[str, bool], gateway: Running) -> None:
    gateway.stub.token_delay_s = 0.0001
    for _ in range(20):  # an answer may still find room in a page that was free
        turn_id, lines = stream_until_full(gateway, disk)
        if "data: [DONE]" not in lines:
            break
    error = json.loads(lines[-2].removeprefix("data: "))["error"]
    assert error["type"] == "insufficient_storage_error"
    disk["full"] = False
    gateway.journal.turns.recover_interrupted()  # what upkeep does after a while
    turn = gateway.journal.turns.get(turn_id)
    assert turn.state is TurnState.EXCLUDED
    assert turn.exclusion in (Exclusion.INTERRUPTED, Exclusion.INFRASTRUCTURE)


def test_feedback_on_a_full_disk_is_not_a_conflict(disk: dict[str, bool], gateway: Running) -> None:
    turn_id, _, _ = say(gateway, [user("hi")])
    disk["full"] = True
    path = f"/v1/turns/{turn_id}/feedback"
    url = gateway.url + path
    said = {"score": 1, "text": noise(7900)}
    statuses = [httpx.post(url, headers=gateway.person, json=said, timeout=30).status_code for _ in range(30)]
    assert 507 in statuses and set(statuses) <= {200, 507}, "and never a 409, which would say that it came too late"


def test_a_version_that_cannot_be_loaded_is_not_served_and_is_reported(gateway: Running) -> None:
    gateway.stub.refuse_load = True
    publish(gateway.journal)
    status = wait_until(lambda: (s := status_of(gateway))["version"]["error"] and s)
    assert status["version"]["number"] == 0 and status["version"]["wanted"] == 1
    turn_id, _, headers = say(gateway, [user("hi")])
    assert (headers["x-turnwise-version"], gateway.journal.turns.get(turn_id).version) == ("0", 0)
    gateway.stub.refuse_load = False
    wait_until(lambda: status_of(gateway)["version"]["number"] == 1)
    assert say(gateway, [user("hi")])[2]["x-turnwise-version"] == "1"


def test_old_adapters_are_unloaded(gateway: Running) -> None:
    for number in range(1, 6):
        publish(gateway.journal)
        wait_until(lambda n=number: status_of(gateway)["version"]["number"] == n)
    wait_until(lambda: len(gateway.stub.known) <= 3)
    assert {"base", "v5"} <= gateway.stub.known


@pytest.mark.parametrize("fault", ["absent", "null", "short"])
def test_log_probs_that_are_missing_stay_missing(gateway: Running, fault: str) -> None:
    gateway.stub.logprobs = fault
    turn_id, _, _ = say(gateway, [user("say: one two three four")])
    turn = gateway.journal.turns.get(turn_id)
    assert turn.logprobs is None
    assert len(turn.response_ids) > 3


def test_the_event_loop_goes_on_while_a_prompt_is_rendered(gateway: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    entered, go_on = threading.Event(), threading.Event()
    render = PromptRenderer.render

    def slow(self: PromptRenderer, *args: Any) -> Any:
        entered.set()
        assert go_on.wait(20)
        return render(self, *args)

    monkeypatch.setattr(PromptRenderer, "render", slow)
    answers: list[int] = []
    body = {"model": "turnwise", "messages": [user("hi")]}
    asking = threading.Thread(target=lambda: answers.append(post(gateway, body).status_code))
    asking.start()
    assert entered.wait(20)
    assert httpx.get(f"{gateway.url}/healthz", timeout=10).status_code == 200
    assert not answers
    go_on.set()
    asking.join(20)
    assert answers == [200]


def test_a_long_session_tokenises_only_what_is_new(gateway: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[int] = []
    encode = ChatMLRenderer.encode

    def counting(self: ChatMLRenderer, text: str) -> list[int]:
        encoded[-1] += len(text)
        return encode(self, text)

    monkeypatch.setattr(ChatMLRenderer, "encode", counting)
    messages = [user("first")]
    for n in range(12):
        encoded.append(0)
        _, answer, _ = say(gateway, messages)
        messages += [answer, user(f"more {n:02}")]
    assert len(set(encoded[2:])) == 1, encoded


def test_turns_keep_their_places_when_one_of_them_fails(gateway: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(gateway.config.server.__dict__, "engine_return_s", 0.2)
    history = [user('say: Look: <tool_call>{"name": broken</tool_call>')]
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    first = post(gateway, {"model": "turnwise", "messages": history, "tools": tools})
    answer = first.json()["choices"][0]["message"]
    assert "tool_calls" not in answer and "broken" in answer["content"]
    history += [answer, user("say: second")]
    gateway.stub.refuse_with = 502
    failed = post(gateway, {"model": "turnwise", "messages": history, "tools": tools})
    assert failed.status_code == 502
    gateway.stub.refuse_with = None
    again = post(gateway, {"model": "turnwise", "messages": history, "tools": tools})
    history += [again.json()["choices"][0]["message"], user("third")]
    third = post(gateway, {"model": "turnwise", "messages": history, "tools": tools})
    ids = [r.headers["x-turnwise-turn-id"] for r in (first, again, third)]
    assert len({session_of(gateway, i) for i in ids}) == 1
    assert [gateway.journal.turns.get(i).index for i in ids] == [0, 2, 3]
    assert next_state(gateway, ids[0])[0]["content"] == "say: second"
    assert next_state(gateway, ids[1])[0]["content"] == "third"
    status = gateway.journal.status.figures()
    assert status["excluded"] == {Exclusion.INFRASTRUCTURE: 1}
    assert not any(status["verdicts"].values()), "a failure of the engine is no verdict"


def test_a_truncated_answer_whose_session_ends_teaches_nothing(gateway: Running) -> None:
    body = {"model": "turnwise", "messages": [user("say: one two three four five")], "max_tokens": 2}
    response = post(gateway, body)
    assert response.json()["choices"][0]["finish_reason"] == "length"
    turn_id = response.headers["x-turnwise-turn-id"]
    post(gateway, {}, f"/v1/sessions/{session_of(gateway, turn_id)}/close")
    assert gateway.journal.turns.get(turn_id).state is TurnState.READY, "it was its session's only one"
    assert gateway.journal.batches.claim("trainer", 60) is None, "the KL term alone begins no batch"


def status_of(gateway: Running) -> dict[str, Any]:
    return httpx.get(f"{gateway.url}/v1/status", headers=gateway.admin, timeout=10).json()


def test_what_nobody_foresaw_is_counted_as_failed(gateway: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_args: Any) -> Any:
        raise RuntimeError("nobody foresaw this")

    monkeypatch.setattr(PromptRenderer, "render", broken)
    assert post(gateway, {"model": "turnwise", "messages": [user("hi")]}).status_code == 500
    assert status_of(gateway)["failed_requests"] == 1


def test_nobody_waits_while_a_version_is_loaded(gateway: Running) -> None:
    gateway.stub.load_delay_s = 3.0
    publish(gateway.journal)
    wait_until(lambda: gateway.stub.loading)
    assert say(gateway, [user("hi")])[2]["x-turnwise-version"] == "0"
    assert gateway.stub.loading, "the answer came while the version was being loaded"
