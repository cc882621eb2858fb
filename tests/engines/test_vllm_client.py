"""What the vLLM client asks for and how it takes what comes; the real server is met in test_real_vllm.py."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.raw_http import Part, answer, plays, refused_for_their_form, spoiled, sse
from turnwise.engines.base import Chunk, SamplingParams, merged
from turnwise.engines.vllm import VllmEngine
from turnwise.errors import EngineError, EngineUnreachable, UnknownModel
from turnwise.tokens.forced_calls import forced_call

OURS = answer(200, {"data": [{"id": "base", "max_model_len": 64, "owned_by": "turnwise"}]})
VLLM = answer(200, {"data": [{"id": "base", "max_model_len": 64, "owned_by": "vllm"}]})


def params(**changes: Any) -> SamplingParams:
    fields = {"max_tokens": 8, "temperature": 1.0, "top_p": 1.0, "top_k": -1, "seed": None}
    return SamplingParams(**(fields | {"stop": (), "stop_token_ids": ()} | changes))


TOOL_A = {"type": "function", "function": {"name": "a", "parameters": {"type": "object"}}}


def one_token(logprob: float | None) -> list[Part]:
    choice = {"text": "a", "token_ids": [7], "logprobs": {"token_logprobs": [logprob]}, "finish_reason": "length"}
    return sse({"choices": [choice]})


async def ask(url: str, **changes: Any) -> list[Chunk]:
    engine = VllmEngine(url, 5.0)
    try:
        return [chunk async for chunk in engine.generate("base", [1, 2], params(**changes), affinity="s")]
    finally:
        await engine.close()


async def test_a_json_schema_is_passed_on() -> None:
    schema = {"type": "object"}
    async with plays(one_token(-0.5)) as played:
        await ask(played.url, structured=schema)
        await ask(played.url)
    assert played.received[0].body["structured_outputs"] == {"json": schema}
    assert "structured_outputs" not in played.received[1].body


async def test_a_call_that_must_be_made_is_a_structural_tag() -> None:
    tag = forced_call("required", [TOOL_A], "")
    async with plays(one_token(-0.5)) as played:
        await ask(played.url, call=tag)
    assert json.loads(played.received[0].body["structured_outputs"]["structural_tag"]) == tag
    assert tag["format"]["begin"] == '<tool_call>{"name": "a", "arguments": '
    with pytest.raises(EngineError, match="'b'"):
        forced_call({"type": "function", "function": {"name": "b"}}, [TOOL_A], "")


async def test_cached_tokens_are_read_from_the_usage() -> None:
    usage = {"prompt_tokens": 2, "prompt_tokens_details": {"cached_tokens": 1}}
    async with plays([*one_token(-0.5)[:-1], *sse({"choices": [], "usage": usage})[1:]]) as played:
        chunks = await ask(played.url)
    last = merged(chunks)  # what arrived together is one chunk
    assert (last.cached_tokens, last.finish_reason, last.logprobs) == (1, "length", [-0.5])


@pytest.mark.parametrize(
    ("name", "models", "at_one", "at_two", "kept"),
    [
        ("raw", VLLM, -2.0, -2.0, False),
        ("processed", VLLM, 0.0, 0.0, True),
        ("before top-k but tempered", VLLM, -2.0, -3.5, True),
        ("ours, which is not asked", OURS, None, None, True),
    ],
)
async def test_logprobs_from_before_the_temperature_are_dropped(
    name: str, models: list[Part], at_one: float | None, at_two: float | None, kept: bool
) -> None:
    probes = [] if at_one is None else [one_token(at_one), one_token(at_two)][: 1 if at_one == 0.0 else 2]
    async with plays(models, *probes, one_token(-1.25)) as played:
        engine = VllmEngine(played.url)
        for _ in range(2):
            chunks = [chunk async for chunk in engine.generate("base", [1], params(temperature=0.7))]
            assert chunks[0].logprobs == ([-1.25] if kept else None), name
        await engine.close()
    assert len(played.received) == 1 + len(probes) + 2, "found out once"
    assert all(request.body["temperature"] <= 2 for request in played.received[1:]), "vLLM refuses more"


async def test_a_server_that_refuses_the_question_still_answers() -> None:
    refused = answer(400, {"error": {"message": "top_k"}})
    async with plays(VLLM, refused, one_token(-1.25)) as played:
        chunks = await ask(played.url, temperature=0.7)
    assert (chunks[0].token_ids, chunks[0].logprobs) == ([7], None)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
async def test_at_temperature_zero_and_one_nothing_needs_to_be_found_out(temperature: float) -> None:
    async with plays(one_token(-1.25)) as played:
        chunks = await ask(played.url, temperature=temperature)
    assert chunks[0].logprobs == [-1.25]
    assert len(played.received) == 1


async def test_missing_logprobs_stay_missing() -> None:
    async with plays(one_token(None)) as played:
        assert (await ask(played.url))[0].logprobs is None


async def test_an_adapter_from_elsewhere_is_replaced_and_our_own_is_left() -> None:
    taken = answer(400, {"error": {"message": "The lora adapter 'v1' has already been loaded."}})
    there = answer(200, {"data": [{"id": "base"}, {"id": "v1", "root": "/home-a/v1"}]})
    fine = answer(200, b"ok")
    async with plays(taken, there, taken, there, fine, fine) as played:
        engine = VllmEngine(played.url)
        await engine.load_adapter("v1", Path("/home-a/v1"))
        await engine.load_adapter("v1", Path("/home-b/v1"))
        await engine.close()
    load, unload, models = "/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/v1/models"
    assert [request.path for request in played.received] == [load, models, load, models, unload, load]
    assert played.received[-1].body == {"lora_name": "v1", "lora_path": "/home-b/v1"}


async def test_an_adapter_that_is_refused_is_an_error() -> None:
    async with plays(answer(400, {"error": {"message": "rank 64"}}), VLLM) as played:
        with pytest.raises(EngineError, match="rank 64"):
            await VllmEngine(played.url).load_adapter("v1", Path("v1"))


async def test_unloading_what_is_gone_is_no_error() -> None:
    async with plays(answer(404, {"error": {"message": "not found"}})) as played:
        await VllmEngine(played.url).unload_adapter("v1")
    assert [(r.path, r.body) for r in played.received] == [("/v1/unload_lora_adapter", {"lora_name": "v1"})]


@pytest.mark.parametrize(
    ("parts", "kind", "status"),
    [
        (answer(404, {"error": {"message": "no such model"}}), UnknownModel, 404),
        (answer(429, {"error": {"message": "full"}}, retry_after="3"), EngineError, 429),
        (answer(500, b"boom", "text/plain"), EngineError, 502),
        (sse(), EngineUnreachable, 502),
        (sse({"error": {"message": "dead"}}), EngineError, 502),
        ([sse()[0], b"data: {no\n\n"], EngineError, 502),
        ([b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\ndata"], EngineUnreachable, 502),
    ],
)
async def test_faults_have_their_kind_and_status(parts: list[Part], kind: type[EngineError], status: int) -> None:
    async with plays(parts) as played:
        with pytest.raises(EngineError) as caught:
            await ask(played.url)
    assert (type(caught.value), caught.value.status) == (kind, status)
    assert caught.value.retry_after == (3.0 if status == 429 else None)


@pytest.mark.parametrize("parts", [answer(200, b"<html>", "text/html"), answer(200, {}), answer(200, {"data": []})])
async def test_what_is_no_vllm_server_is_named(parts: list[Part]) -> None:
    async with plays(parts) as played:
        with pytest.raises(EngineError, match="vLLM server"):
            await VllmEngine(played.url).max_model_len()


async def test_a_server_that_calls_its_model_otherwise_is_told_apart() -> None:
    async with plays(answer(200, {"data": [{"id": "smol", "max_model_len": 64}]})) as played:
        with pytest.raises(EngineError, match="--served-model-name base"):
            await VllmEngine(played.url).max_model_len()


@pytest.mark.parametrize(("status", "kind", "wait"), [(404, UnknownModel, None), (429, EngineError, 17.0)])
async def test_a_compressed_refusal_is_read_like_any_other(
    status: int, kind: type[EngineError], wait: float | None
) -> None:
    body = gzip.compress(json.dumps({"error": {"message": "not today"}}).encode())
    headers = {"content_encoding": "gzip"} | ({"retry_after": "17"} if wait else {})
    async with plays(answer(status, body, **headers)) as played:
        with pytest.raises(kind, match="not today") as caught:
            await ask(played.url)
    assert (caught.value.status, caught.value.retry_after) == (status, wait)


async def test_penalties_and_min_p_are_passed_on_where_they_change_something() -> None:
    given = {"min_p": 0.1, "frequency_penalty": 0.3, "presence_penalty": -0.5, "repetition_penalty": 1.1}
    async with plays(OURS, one_token(-0.5)) as played:
        await ask(played.url, **given)
        await ask(played.url)
    asked = [request.body for request in played.received if "prompt" in (request.body or {})]
    assert {name: asked[0][name] for name in given} == given
    assert not given.keys() & asked[1].keys()


@pytest.mark.parametrize("temperature", [0.0, 1.0, 0.7])
@pytest.mark.parametrize(("server", "kept"), [("raw", False), ("processed", True)])
async def test_log_probs_from_before_the_penalties_are_dropped(server: str, kept: bool, temperature: float) -> None:
    probes = [one_token(-2.0), one_token(-2.0)] if server == "raw" else [one_token(0.0)]
    async with plays(VLLM, *probes, one_token(-1.25)) as played:
        chunks = await ask(played.url, temperature=temperature, frequency_penalty=0.3)
    assert chunks[0].logprobs == ([-1.25] if kept else None)


async def test_events_of_any_other_form_are_chunks_or_a_sentence() -> None:
    choice = {"text": "a", "token_ids": [7], "logprobs": {"token_logprobs": [-0.5]}, "finish_reason": "stop"}
    usage = {"prompt_tokens_details": {"cached_tokens": 1}}
    events = *spoiled({"choices": [choice | {"stop_reason": 2}]}), *spoiled({"choices": [], "usage": usage})
    assert await refused_for_their_form(ask, events) > 50
