"""What a running gateway does by itself: it closes idle sessions, gives lost turns up, and outlives a bad record file.

The tests look through the API alone; nothing but the gateway moves a turn.
"""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gateway.callers import FORMATS, Caller, Talk, user
from tests.gateway.conftest import Agents
from tests.gateway.starting import gateway_on, settings, stub_engine
from tests.support.servers import wait_until
from turnwise.errors import JournalError
from turnwise.gateway import server
from turnwise.journal.turns.recording import Turns
from turnwise.messages import text_of
from turnwise.types import Exclusion, TurnState

CALLERS = list(itertools.product(FORMATS, (False, True)))


def status(gateway: Agents) -> dict[str, Any]:
    return httpx.get(f"{gateway.url}/v1/status", headers=gateway.admin, timeout=20).json()


def test_idle_sessions_are_closed_and_open_again(tmp_path: Path, qwen3_dir: Path) -> None:
    config = settings(tmp_path / "home", qwen3_dir, sessions__idle_close_s=1.0)
    with stub_engine(qwen3_dir) as (stub, url), gateway_on(config, stub, url) as gateway:
        talks = [Talk(Caller(gateway, *how), [user(f"say: for {how}")]) for how in CALLERS]
        sessions = {talk.ask().session_id for talk in talks}
        assert len(sessions) == len(CALLERS)
        wait_until(lambda: status(gateway)["sessions"] == {"open": 0, "total": len(CALLERS)})
        assert (status(gateway)["turns"]["ready"], status(gateway)["samples_ready"]) == (len(CALLERS), 0)
        for talk in talks:
            talk.say("say: I am back")
            assert talk.ask().session_id == talk.turns[0].session_id
        assert {row["close_reason"] for row in gateway.journal.sessions.last_seen()} <= {None, "idle"}
        wait_until(lambda: status(gateway)["excluded"] == {Exclusion.NO_NEXT_STATE: len(CALLERS)})


def test_a_group_that_never_completes_is_closed(tmp_path: Path, qwen3_dir: Path) -> None:
    """No trainer runs here."""
    config = settings(tmp_path / "home", qwen3_dir, streams={"web": {"group_wait_s": 0.5}})
    with stub_engine(qwen3_dir) as (stub, url), gateway_on(config, stub, url) as gateway:
        rollout = {"X-Session-Id": "one", "X-Stream": "web", "X-Group-Id": "g"}
        said = {"model": "turnwise", "messages": [{"role": "user", "content": "say: ls"}]}
        path = f"{gateway.url}/v1/chat/completions"
        assert httpx.post(path, headers=gateway.auth | rollout, json=said, timeout=20).status_code == 200
        wait_until(lambda: status(gateway)["groups"] == {"dropped": 1})
        assert status(gateway)["excluded"] == {Exclusion.NO_OUTCOME: 1}


def test_a_session_whose_answer_takes_long_is_not_idle(tmp_path: Path, qwen3_dir: Path) -> None:
    config = settings(tmp_path / "home", qwen3_dir, sessions__idle_close_s=0.2)
    with (
        stub_engine(qwen3_dir) as (stub, url),
        gateway_on(config, stub, url) as gateway,
        ThreadPoolExecutor(len(CALLERS)) as pool,
    ):
        stub.token_delay_s = 0.5
        asking = [pool.submit(Caller(gateway, *how).ask, [user(f"say: a b c d e f g h {how}")]) for how in CALLERS]
        wait_until(lambda: len(stub.sampled) == len(CALLERS))
        Caller(gateway, "chat", False).ask([user("say: ")])  # of another session, which is closed meanwhile
        try:
            wait_until(lambda: status(gateway)["turns"][TurnState.READY])
            seen = status(gateway)
            unanswered = [not each.done() for each in asking]
        finally:
            stub.token_delay_s = 0.0
        for each in asking:
            each.result()
    assert all(unanswered)
    assert (seen["sessions"]["open"], seen["turns"][TurnState.SERVED]) == (len(CALLERS), len(CALLERS))


@pytest.mark.parametrize("how", ["whole", "streamed"])
@pytest.mark.parametrize("name", FORMATS)
def test_a_turn_whose_end_was_lost_is_given_up(
    tmp_path: Path, qwen3_dir: Path, monkeypatch: pytest.MonkeyPatch, name: str, how: str
) -> None:
    monkeypatch.setattr(server, "LOST_AFTER_S", 0.2)
    config = settings(tmp_path / "home", qwen3_dir, server__request_timeout_s=2.0)
    finish = Turns.finish_soon

    def lost(self: Turns, turn_id: str, answer: Any) -> Any:
        if text_of(answer.message).startswith("lost"):
            raise JournalError("the disk is full")
        return finish(self, turn_id, answer)

    with stub_engine(qwen3_dir) as (stub, url), gateway_on(config, stub, url) as gateway:
        caller = Caller(gateway, name, how == "streamed")
        monkeypatch.setattr(Turns, "finish_soon", lost)
        response = caller.post([user("say: lost for good")])
        assert response.status_code == (200 if caller.stream else 507), response.text
        assert "could not be recorded" in response.text
        turn = caller.ask([user("say: kept")])
        assert status(gateway)["turns"][TurnState.SERVED] == 1
        wait_until(lambda: status(gateway)["excluded"] == {Exclusion.INTERRUPTED: 1})
        assert gateway.turn(turn.id).state is TurnState.WAITING
