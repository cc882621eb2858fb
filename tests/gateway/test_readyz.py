"""`/readyz` says whether answers can be given, and which loop is in trouble either way; it never waits without end."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from filelock import FileLock

from tests.conftest import GatewayThread, Running
from tests.support.servers import wait_until
from turnwise.config import Config, load_config
from turnwise.engines.private_socket import private_socket
from turnwise.loops.states import LOCK, LoopState, write_states

HUNG = LoopState("hung", restarts=2, recent=2, why="gave no sign of life for 61 s", last_words=("what somebody said",))


@pytest.fixture
def supervised(config: Config) -> Iterator[None]:
    """The test stands in for the supervisor of the home, and holds its lock."""
    config.home.mkdir(parents=True, exist_ok=True)
    with FileLock(config.home / LOCK):
        yield


@pytest.mark.usefixtures("supervised")
def test_a_hung_judge_is_named_while_answers_are_given(gateway: Running) -> None:
    assert "degraded" not in httpx.get(f"{gateway.url}/readyz", timeout=30).json()
    write_states(gateway.config.home, os.getpid(), {"judge": HUNG, "trainer": LoopState("running")})
    answer = httpx.get(f"{gateway.url}/readyz", timeout=30)
    assert (answer.status_code, answer.json()["status"]) == (200, "ready")
    assert answer.json()["degraded"] == {
        "judge": {"state": "hung", "restarts": 2, "recent_restarts": 2, "why": "gave no sign of life for 61 s"}
    }
    assert "somebody" not in answer.text, "anybody may ask: no line of a log"
    status = httpx.get(f"{gateway.url}/v1/status", headers=gateway.person, timeout=30).json()
    assert status["supervised"]["judge"]["last_words"] == ["what somebody said"]
    assert status["supervised"]["trainer"]["state"] == "running"


@pytest.fixture
def before_its_engine(config: Config) -> Iterator[str]:
    """A gateway whose engine's socket is there while no engine runs: requests wait in the socket's queue."""
    config.home.mkdir(parents=True, exist_ok=True)
    with private_socket(config.home) as sock:
        thread = GatewayThread(config, f"unix:{sock.getsockname()}")
        thread.start(config)
        yield thread.url
        thread.stop()


@pytest.mark.usefixtures("supervised")
def test_an_engine_that_is_away_is_a_503_in_time(before_its_engine: str, config: Config) -> None:
    write_states(config.home, os.getpid(), {"engine": LoopState("down", 3, 3, "ended with code -9")})
    started = time.monotonic()
    answer = httpx.get(f"{before_its_engine}/readyz", timeout=60)
    assert time.monotonic() - started < 40
    assert answer.status_code == 503
    assert "the engine does not answer yet" in answer.json()["error"]["message"]
    assert answer.json()["degraded"]["engine"]["state"] == "down"
    assert answer.headers["retry-after"] == "1"


def test_a_request_to_an_engine_that_stays_away_ends_in_time(tmp_path: Path) -> None:
    limits = {"server.engine_return_s": 1.0, "server.engine_stall_s": 1.0}
    config = load_config(overrides={"home": tmp_path / "home", "server.port": 0} | limits)
    config.home.mkdir(parents=True)
    with private_socket(config.home) as sock:
        thread = GatewayThread(config, f"unix:{sock.getsockname()}")
        thread.start(config)
        headers = {"Authorization": f"Bearer {config.token_path.read_text().strip()}"}
        body = {"model": "turnwise", "messages": [{"role": "user", "content": "Hello"}]}
        answer = httpx.post(f"{thread.url}/v1/chat/completions", json=body, headers=headers, timeout=60)
        thread.stop()
    assert answer.status_code in (502, 504)
    assert "starting again" in answer.json()["error"]["message"]


def test_a_journal_that_takes_no_write_is_named_and_no_more_once_it_does(gateway: Running) -> None:
    """Another program holds the journal's write lock, as a backup tool may."""
    holder = sqlite3.connect(gateway.config.journal_path, isolation_level=None)

    def degraded() -> dict[str, Any]:
        answer = httpx.get(f"{gateway.url}/readyz", timeout=30)
        assert answer.status_code == 200
        assert str(gateway.config.home) not in answer.text
        return answer.json().get("degraded", {})

    try:
        holder.execute("BEGIN IMMEDIATE")
        wait_until(lambda: degraded().get("journal", {}).get("state") == "unavailable", 90)
        holder.execute("ROLLBACK")
        wait_until(lambda: degraded() == {}, 90)
    finally:
        holder.close()
