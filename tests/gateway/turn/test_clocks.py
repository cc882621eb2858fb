"""A gateway whose clock jumps while it answers: what it has in hand is not closed, and sessions are idle by real time.

The engine is a stub; the gateway, HTTP and the journal are real, and the clocks are the test's.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from tokenizers import Tokenizer

from tests.conftest import GatewayThread, Running, scripted
from tests.support.servers import running, wait_until
from turnwise.bench.stub_engine import StubEngine
from turnwise.config import Config
from turnwise.gateway import server
from turnwise.gateway.turn.in_hand import InHand
from turnwise.journal import Journal
from turnwise.types import TurnState


class Jumping:
    """Both clocks, each ahead of the real one by as much as the test says."""

    wall, mono = 0.0, 0.0

    def clock(self) -> float:
        return time.time() + self.wall

    def monotonic(self) -> float:
        return time.monotonic() + self.mono


@pytest.fixture
def jumping(monkeypatch: pytest.MonkeyPatch) -> Jumping:
    clocks, real = Jumping(), Journal.open.__func__
    monkeypatch.setattr(
        Journal, "open", classmethod(lambda cls, config: real(cls, config, clocks.clock, clocks.monotonic))
    )
    monkeypatch.setattr(server, "UPKEEP_S", 0.05)
    monkeypatch.setattr(server, "LOST_AFTER_S", 0.2)
    return clocks


@pytest.fixture
def fronted(jumping: Jumping, config: Config, tokenizer: Tokenizer) -> Iterator[Running]:
    stub = StubEngine(tokenizer, scripted)
    with running(stub.app()) as engine_url:
        thread = GatewayThread(config, engine_url)
        thread.start(config)
        journal = Journal.open(config)
        yield Running(thread.url, (config.home / "token").read_text().strip(), stub, journal, config)
        journal.close()
        thread.stop()


def ask(gateway: Running, text: str) -> httpx.Response:
    body = {"model": "turnwise", "messages": [{"role": "user", "content": text}]}
    return httpx.post(f"{gateway.url}/v1/chat/completions", headers=gateway.auth, json=body, timeout=60)


def upkeeps(gateway: Running, times: int = 4) -> None:
    """Wait until the gateway has looked after its turns and sessions some times more."""
    seen: set[Any] = set()

    def looked() -> bool:
        with gateway.journal.store.reading() as c:
            seen.add(c.exec_driver_sql("SELECT updated_at FROM loops WHERE name = 'gateway'").scalar())
        return len(seen) > times

    wait_until(looked)


@pytest.mark.parametrize("jump", [-3600.0, 3600.0, 1e8])
def test_an_answer_under_way_outlives_a_jump_of_the_clock(fronted: Running, jumping: Jumping, jump: float) -> None:
    fronted.stub.token_delay_s = 0.3
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask, fronted, "say: a b c d e f g h i j")
        wait_until(lambda: fronted.journal.status.figures()["turns"][TurnState.SERVED] == 1)
        jumping.wall += jump
        upkeeps(fronted)
        jumping.mono += max(0.0, jump)  # and if the machine's own time went on as well
        upkeeps(fronted)
        assert fronted.journal.status.figures()["turns"][TurnState.SERVED] == 1, "it has the answer in hand"
        response = asking.result()
    assert response.status_code == 200
    turn = fronted.turn(response.headers["x-turnwise-turn-id"])
    assert (turn.state, turn.exclusion) == (TurnState.WAITING, None)


@pytest.mark.parametrize("jump", [-1e8, 1e8])
def test_a_jump_closes_no_session_and_keeps_none_open(fronted: Running, jumping: Jumping, jump: float) -> None:
    assert ask(fronted, "say: hello").status_code == 200
    jumping.wall += jump
    upkeeps(fronted)
    assert fronted.journal.status.figures()["sessions"] == {"open": 1, "total": 1}
    jumping.mono += fronted.config.sessions.idle_close_s + 1
    wait_until(lambda: fronted.journal.status.figures()["sessions"] == {"open": 0, "total": 1})


def test_a_turn_is_lost_once_nobody_has_held_it_for_a_while() -> None:
    now = 100.0
    hands = InHand(lambda: now)
    hands.take("a")
    hands.take("a")
    hands.let_go("a")
    for _ in range(3):
        lost = hands.lost_for(10)
        assert not lost("a")
        now += 1000
    hands.let_go("a")
    assert not hands.lost_for(10)("a"), "it may be looked for in the moment it is let go"
    now += 9
    assert not hands.lost_for(10)("a")
    now += 1
    assert hands.lost_for(10)("a")
    hands.take("a")
    assert not hands.lost_for(10)("a")
