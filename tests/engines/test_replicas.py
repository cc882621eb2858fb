"""Several engines as one: who is asked, what happens when one is down, and adapters everywhere."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import ExitStack, aclosing, suppress
from pathlib import Path

import pytest
from openai import OpenAI
from tokenizers import Tokenizer

from tests.conftest import GatewayThread
from tests.support.servers import running, wait_until
from turnwise.bench.stub_engine import StubEngine
from turnwise.config import Config
from turnwise.engines.base import Chunk, SamplingParams
from turnwise.engines.replicas import AVOID_S, Replicas, ranked
from turnwise.engines.vllm import VllmEngine
from turnwise.errors import EngineError, EngineUnreachable, UnknownModel

PARAMS = SamplingParams(20, 1.0, 1.0, -1, None, (), ())
URLS = [f"http://replica-{n}" for n in range(4)]
SESSIONS = [f"session-{n}" for n in range(400)]


def test_a_session_keeps_its_replica_and_sessions_are_spread_evenly() -> None:
    assert ranked("s", URLS) == ranked("s", URLS[::-1])
    load = Counter(ranked(session, URLS)[0] for session in SESSIONS)
    assert load.keys() == set(URLS)
    assert min(load.values()) > 60


def test_a_replica_that_goes_moves_only_its_own_sessions() -> None:
    for session in SESSIONS:
        first, *rest = ranked(session, URLS)
        assert ranked(session, [url for url in URLS if url != first]) == rest
        assert ranked(session, [*URLS, "http://new"])[0] in (first, "http://new")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Fleet:
    """Three stub engines on loopback and the engine that is made of them."""

    def __init__(self, stubs: list[StubEngine], urls: list[str], clock: Clock) -> None:
        self.clock = clock
        self.stubs = dict(zip(urls, stubs, strict=True))
        self.engine = Replicas({url: VllmEngine(url, 5.0) for url in urls}, clock)

    async def ask(self, affinity: str = "", model: str = "base") -> list[Chunk]:
        return [chunk async for chunk in self.engine.generate(model, [1, 2, 3], PARAMS, affinity=affinity)]

    def asked(self) -> dict[str, int]:
        return {url: len(stub.sampled) for url, stub in self.stubs.items()}


@pytest.fixture
async def fleet(tokenizer: Tokenizer) -> AsyncIterator[Fleet]:
    stubs = [StubEngine(tokenizer, lambda prompt: "an answer") for _ in range(3)]
    with ExitStack() as stack:
        made = Fleet(stubs, [stack.enter_context(running(stub.app())) for stub in stubs], Clock())
        yield made
        await made.engine.close()


def unused_url() -> str:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{sock.getsockname()[1]}"


async def test_the_requests_of_a_session_meet_one_replica(fleet: Fleet) -> None:
    for _ in range(5):
        await fleet.ask("session-1")
    assert sorted(fleet.asked().values()) == [0, 0, 5]
    assert fleet.asked()[ranked("session-1", list(fleet.stubs))[0]] == 5


async def test_requests_without_a_session_go_where_least_runs(fleet: Fleet) -> None:
    streams = [fleet.engine.generate("base", [1], PARAMS) for _ in range(3)]
    for stream in streams:
        await anext(stream)
    assert set(fleet.asked().values()) == {1}
    for stream in streams:
        await stream.aclose()


async def test_a_replica_that_dies_before_its_first_token_is_passed_by(fleet: Fleet) -> None:
    first, second, _ = fleet.engine.order("s")
    fleet.stubs[first].die_after = 0
    assert (await fleet.ask("s"))[-1].finish_reason == "stop"
    assert fleet.asked()[second] == 1
    await fleet.ask("s")
    assert fleet.asked()[first] == 1, "it is asked last for a while"
    fleet.stubs[first].die_after = None
    fleet.clock.now += AVOID_S + 1
    await fleet.ask("s")
    assert fleet.asked()[first] == 2, "and is tried again afterwards"


async def test_nothing_is_asked_twice_once_a_token_was_sent(fleet: Fleet) -> None:
    first = fleet.engine.order("s")[0]
    fleet.stubs[first].die_after = 1
    with pytest.raises(EngineUnreachable):
        await fleet.ask("s")
    assert sum(fleet.asked().values()) == 1


@pytest.mark.parametrize(("status", "asked"), [(503, 3), (429, 1), (400, 1)])
async def test_only_a_replica_that_cannot_serve_is_passed_by(fleet: Fleet, status: int, asked: int) -> None:
    for stub in fleet.stubs.values():
        stub.refuse_with = status
    with pytest.raises(EngineError) as caught:
        await fleet.ask("s")
    assert caught.value.status == status
    for stub in fleet.stubs.values():
        stub.refuse_with = None
    assert (await fleet.ask("s"))[-1].finish_reason == "stop"


async def test_all_replicas_down_is_said(fleet: Fleet) -> None:
    engine = Replicas({url: VllmEngine(url) for url in (unused_url(), unused_url())})
    with pytest.raises(EngineUnreachable):
        [chunk async for chunk in engine.generate("base", [1], PARAMS)]
    with pytest.raises(EngineUnreachable):
        await engine.load_adapter("v1", Path("v1"))
    with pytest.raises(EngineUnreachable):
        await engine.max_model_len()
    assert not await engine.healthy()
    await engine.close()


async def test_an_adapter_is_on_every_replica_and_goes_from_every_replica(fleet: Fleet) -> None:
    await fleet.engine.load_adapter("v1", Path("v1"))
    assert {tuple(stub.loads) for stub in fleet.stubs.values()} == {("v1",)}
    await fleet.engine.unload_adapter("v1")
    assert all("v1" not in stub.known for stub in fleet.stubs.values())


async def test_a_replica_that_was_restarted_gets_its_adapters_again(fleet: Fleet) -> None:
    await fleet.engine.load_adapter("v1", Path("v1"))
    first = fleet.engine.order("s")[0]
    fleet.stubs[first].known.discard("v1")
    assert (await fleet.ask("s", model="v1"))[-1].finish_reason == "stop"
    assert fleet.stubs[first].loads == ["v1", "v1"]
    with pytest.raises(UnknownModel):
        await fleet.ask("s", model="v2")


async def test_a_replica_that_is_away_does_not_hold_up_an_adapter(fleet: Fleet) -> None:
    away = unused_url()
    engine = Replicas(fleet.engine.servers | {away: VllmEngine(away)})
    await engine.load_adapter("v1", Path("v1"))
    assert engine.order("any")[-1] == away
    assert await engine.healthy()
    assert await engine.max_model_len() == 4096


async def test_hanging_up_reaches_the_replica(fleet: Fleet) -> None:
    first = fleet.engine.order("s")[0]
    fleet.stubs[first].token_delay_s = 0.05
    async with aclosing(fleet.engine.generate("base", [1], PARAMS, affinity="s")) as chunks:
        await anext(chunks)
    with suppress(EngineError):
        await fleet.ask("t")
    wait_until(lambda: fleet.stubs[first].cancelled == 1)


def test_through_the_gateway_sessions_stay_and_a_replica_that_dies_fails_nobody(
    tokenizer: Tokenizer, config: Config
) -> None:
    stubs = [StubEngine(tokenizer, lambda prompt: "yes") for _ in range(2)]
    with ExitStack() as stack:
        urls = [stack.enter_context(running(stub.app())) for stub in stubs]
        thread = GatewayThread(config, urls)
        thread.start(config)
        client = OpenAI(base_url=f"{thread.url}/v1", api_key=config.token_path.read_text().strip(), max_retries=0)

        def ask(session: int) -> str | None:
            reply = client.chat.completions.create(
                model="turnwise",
                messages=[{"role": "user", "content": f"hi {len(stubs[0].sampled)} {len(stubs[1].sampled)}"}],
                extra_headers={"X-Session-Id": f"s{session}"},
            )
            return reply.choices[0].message.content

        for session in range(20):
            before = [len(stub.sampled) for stub in stubs]
            assert [ask(session), ask(session)] == ["yes", "yes"]
            assert sorted(len(s.sampled) - b for s, b in zip(stubs, before, strict=True)) == [0, 2], "one replica"
        assert all(stub.sampled for stub in stubs), "both have sessions"
        stubs[0].die_after = 0
        assert [ask(session) for session in range(8)] == ["yes"] * 8
        thread.stop()
