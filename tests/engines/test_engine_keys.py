"""A vLLM or SGLang server that wants a key gets it with every request, and it stands in no message."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.raw_http import Part, Played, answer, plays, sse
from turnwise.config import Config, load_config
from turnwise.engines.base import SamplingParams
from turnwise.engines.choose import token_engine
from turnwise.engines.examine import examine_engine
from turnwise.engines.vllm import VllmEngine
from turnwise.errors import ConfigError, EngineError

KEY = "sk-engine-0123456789abcdef"
PARAMS = SamplingParams(8, 1.0, 1.0, -1, None, (), ())
MODELS = answer(200, {"data": [{"id": "base", "max_model_len": 64, "owned_by": "turnwise"}]})


def configured(kind: str, *urls: str) -> Config:
    more = {"engine.kind": kind, "engine.urls": list(urls), "engine.api_key_env": "MY_ENGINE_KEY"}
    return load_config(overrides=more)


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_ENGINE_KEY", KEY + "\n")


async def everything_of(played: Played, kind: str) -> None:
    """Each kind of request that a gateway sends to its engine."""
    engine = token_engine(configured(kind, played.url), [played.url])
    await engine.healthy()
    await engine.max_model_len()
    with pytest.raises(EngineError):  # what is played has no token in it
        async for _ in engine.generate("base", [1], PARAMS):
            pass
    await engine.load_adapter("v1", Path("v1"))
    await engine.unload_adapter("v1")
    await engine.close()


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
async def test_every_request_carries_the_key(kind: str) -> None:
    fine = answer(200, {"success": True})
    async with plays(answer(200, b""), MODELS, sse({"error": {"message": "no"}}), fine) as played:
        await everything_of(played, kind)
    assert len(played.received) == 5
    assert {request.headers.get("authorization") for request in played.received} == {f"Bearer {KEY}"}


async def test_every_replica_gets_the_key_and_the_examination_has_it_too() -> None:
    async with plays(MODELS) as one, plays(MODELS) as two:
        engine = token_engine(configured("vllm", one.url, two.url), [one.url, two.url])
        assert await engine.max_model_len() == 64
        await engine.close()
        await examine_engine(configured("vllm", one.url))
    received = [*one.received, *two.received]
    assert len(received) > 3
    assert {request.headers.get("authorization") for request in received} == {f"Bearer {KEY}"}


async def test_the_engine_that_turnwise_starts_is_not_told_the_key_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNWISE_ENGINE_API_KEY", KEY)
    async with plays(MODELS) as played:
        engine = token_engine(load_config(), [played.url])
        await engine.max_model_len()
        await engine.close()
    assert "authorization" not in played.received[0].headers


REFUSALS: list[tuple[str, list[Part]]] = [
    ("refused", answer(401, {"error": f"Unauthorized: {KEY}"})),
    ("failed", answer(500, f"Bearer {KEY} made it fail".encode(), "text/plain")),
    ("in the middle", sse({"error": {"message": f"the key {KEY} is over its limit"}})),
]


@pytest.mark.parametrize(("when", "played_back"), REFUSALS, ids=[name for name, _ in REFUSALS])
@pytest.mark.parametrize("kind", ["vllm", "sglang"])
async def test_a_server_that_repeats_the_key_does_not_bring_it_into_a_message(
    kind: str, when: str, played_back: list[Part]
) -> None:
    async with plays(played_back) as played:
        engine = token_engine(configured(kind, played.url), [played.url])
        with pytest.raises(EngineError) as streamed:
            async for _ in engine.generate("base", [1], PARAMS):
                pass
        said = str(streamed.value)
        if when != "in the middle":
            with pytest.raises(EngineError) as whole:
                await engine.load_adapter("v1", Path("v1"))
            said += str(whole.value)
        await engine.close()
    assert KEY not in said


async def test_a_refused_key_says_where_it_is_set() -> None:
    async with plays(answer(200, b""), answer(401, {"error": "Unauthorized"})) as played:
        [(level, text)] = await examine_engine(configured("vllm", played.url))
    assert level == "fault"
    assert "refuses its key (401)" in text and "engine.api_key_env" in text


async def test_the_key_does_not_follow_a_redirect() -> None:
    async with plays(answer(200, {})) as elsewhere, plays(answer(307, b"", location=f"{elsewhere.url}/v1")) as played:
        engine = VllmEngine(played.url, 5.0, KEY)
        with pytest.raises(EngineError):
            async for _ in engine.generate("base", [1], PARAMS):
                pass
        with pytest.raises(EngineError):
            await engine.load_adapter("v1", Path("v1"))
        await engine.close()
    assert elsewhere.received == []


def test_a_key_that_cannot_be_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_ENGINE_KEY", "a\nb")
    with pytest.raises(ConfigError, match="MY_ENGINE_KEY"):
        token_engine(configured("vllm", "http://127.0.0.1:1"), ["http://127.0.0.1:1"])
