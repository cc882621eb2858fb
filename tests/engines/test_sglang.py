"""The SGLang client against constructed exchanges: the server itself does not start on the machines of these tests.

Field names and shapes were read in SGLang's own source: events of `/generate` with `text`, `output_ids` and `meta_info`
(repeating everything so far, or with `--incremental-streaming-output` only what is new), finish reasons as objects, and
errors inside of a stream of status 200.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.raw_http import Part, answer, plays, refused_for_their_form, spoiled, sse
from turnwise.engines.base import Chunk, SamplingParams
from turnwise.engines.sglang import SglangEngine
from turnwise.errors import EngineError, EngineUnreachable, UnknownModel

TOKENS = [(-0.5, 11, "Hel"), (-0.25, 12, "lo "), (-1.0, 13, "END"), (-2.0, 2, "")]
STOP = {"type": "stop", "matched": 2}


def params(**changes: Any) -> SamplingParams:
    fields = {"max_tokens": 8, "temperature": 1.0, "top_p": 0.9, "top_k": -1, "seed": None}
    return SamplingParams(**(fields | {"stop": (), "stop_token_ids": (2,)} | changes))


def event(old: int, new: int, *, incremental: bool, text: str | None = None, finish: Any = None) -> dict[str, Any]:
    """The server's event after `new` tokens, when it had sent `old` of them before."""
    start = old if incremental else 0
    shown = "".join(t[2] for t in TOKENS[start:new])
    return {
        "text": shown if text is None else text,
        "output_ids": [t[1] for t in TOKENS[start:new]],
        "meta_info": {
            "id": "r1",
            "finish_reason": finish,
            "prompt_tokens": 2,
            "completion_tokens": new,
            "cached_tokens": 1,
            "output_token_logprobs": [[t[0], t[1], None] for t in TOKENS[start:new]],
        },
    }


async def ask(url: str, model: str = "base", **changes: Any) -> list[Chunk]:
    engine = SglangEngine(url, 5.0)
    try:
        return [chunk async for chunk in engine.generate(model, [1, 2], params(**changes))]
    finally:
        await engine.close()


@pytest.mark.parametrize("incremental", [False, True])
async def test_ids_logprobs_and_text_are_taken_from_either_kind_of_stream(incremental: bool) -> None:
    events = [
        event(0, 1, incremental=incremental),
        event(1, 3, incremental=incremental),
        event(3, 4, incremental=incremental, finish=STOP),
    ]
    async with plays(sse(*events)) as played:
        chunks = await ask(played.url)
    assert [chunk.token_ids for chunk in chunks] == [[11], [12, 13], [2]]
    assert [chunk.logprobs for chunk in chunks] == [[-0.5], [-0.25, -1.0], [-2.0]]
    assert [chunk.text for chunk in chunks] == ["Hel", "lo END", ""]
    assert [chunk.finish_reason for chunk in chunks] == [None, None, "stop"]
    assert chunks[-1].stop_string is None
    assert chunks[-1].cached_tokens == 1


async def test_a_stop_string_is_cut_from_the_text_but_not_from_the_ids() -> None:
    events = [
        event(0, 1, incremental=False),
        event(1, 2, incremental=False, text="Hello E"),
        event(2, 3, incremental=False, text="Hello ", finish={"type": "stop", "matched": "END"}),
    ]
    async with plays(sse(*events)) as played:
        chunks = await ask(played.url, stop=("END",))
    assert [chunk.text for chunk in chunks] == ["Hel", "lo ", ""]
    assert [i for chunk in chunks for i in chunk.token_ids] == [11, 12, 13]
    assert chunks[-1].stop_string == "END"


async def test_text_that_was_no_stop_string_after_all_comes_later() -> None:
    events = [
        event(0, 1, incremental=False, text="Hello E"),
        event(1, 2, incremental=False, text="Hello Egon", finish={"type": "length", "length": 2}),
    ]
    async with plays(sse(*events)) as played:
        chunks = await ask(played.url, stop=("END",))
    assert [chunk.text for chunk in chunks] == ["Hello ", "Egon"]
    assert chunks[-1].finish_reason == "length"


async def test_what_is_asked() -> None:
    done = sse(event(0, 1, incremental=False, finish=STOP))
    async with plays(done) as played:
        await ask(played.url, seed=5, stop=("x",), top_k=40, structured={"type": "object"})
        await ask(played.url, model="v3")
    first, second = (request.body for request in played.received)
    assert played.received[0].path == "/generate"
    assert first == {
        "input_ids": [1, 2],
        "sampling_params": {
            "max_new_tokens": 8,
            "temperature": 1.0,
            "top_p": 0.9,
            "top_k": 40,
            "stop_token_ids": [2],
            "stop": ["x"],
            "sampling_seed": 5,
            "json_schema": '{"type": "object"}',
        },
        "return_logprob": True,
        "stream": True,
    }
    assert (second["lora_path"], second["sampling_params"]["top_k"]) == ("v3", -1)


@pytest.mark.parametrize(
    ("parts", "kind", "status"),
    [
        (sse({"error": {"message": "The following requested LoRA adapters are not loaded: v3"}}), UnknownModel, 404),
        (sse({"error": {"message": "The input (99 tokens) is longer than the context"}}), EngineError, 400),
        (sse(event(0, 1, incremental=False), {"error": {"message": "dead"}}), EngineError, 502),
        (sse(event(0, 1, incremental=False)), EngineUnreachable, 502),
        (
            sse({"meta_info": {"finish_reason": {"type": "abort", "message": "full", "status_code": 503}}}),
            EngineError,
            503,
        ),
        (sse({"meta_info": {"finish_reason": {"type": "abort"}}}), EngineError, 502),
        (answer(503, b""), EngineError, 503),
    ],
)
async def test_faults_have_their_kind_and_status(parts: list[Part], kind: type[EngineError], status: int) -> None:
    async with plays(parts) as played:
        with pytest.raises(EngineError) as caught:
            await ask(played.url)
    assert (type(caught.value), caught.value.status) == (kind, status)


@pytest.mark.parametrize("triples", [None, [], [[-0.5, 99, None]], [[None, 11, None]]])
async def test_logprobs_that_are_not_of_the_ids_count_as_missing(triples: Any) -> None:
    only = event(0, 1, incremental=False, finish=STOP)
    only["meta_info"]["output_token_logprobs"] = triples
    async with plays(sse(only)) as played:
        assert (await ask(played.url))[0].logprobs is None


async def test_adapters_are_loaded_and_unloaded() -> None:
    fine = answer(200, {"success": True, "loaded_adapters": {"v1": "p"}})
    taken = answer(400, {"success": False, "error_message": "LoRA with name v1 already exists. Loaded LoRAs: v1"})
    gone = answer(400, {"success": False, "error_message": "LoRA with name v1 does not exist."})
    async with plays(taken, fine, fine, taken, fine, gone) as played:
        engine = SglangEngine(played.url)
        await engine.load_adapter("v1", Path("p"))  # another's: it is taken away and loaded anew
        await engine.load_adapter("v1", Path("p"))  # ours
        await engine.unload_adapter("v1")
        await engine.unload_adapter("v1")
        await engine.close()
    load, unload = "/load_lora_adapter", "/unload_lora_adapter"
    assert [request.path for request in played.received] == [load, unload, load, load, unload, unload]
    assert played.received[0].body == {"lora_name": "v1", "lora_path": "p"}


async def test_an_adapter_that_is_refused_is_an_error() -> None:
    async with plays(answer(400, {"success": False, "error_message": "rank 64 is too large"})) as played:
        with pytest.raises(EngineError, match="rank 64"):
            await SglangEngine(played.url).load_adapter("v1", Path("p"))


async def test_health_and_context_length() -> None:
    async with plays(answer(200, b""), answer(200, {"data": [{"id": "m", "max_model_len": 99}]})) as played:
        engine = SglangEngine(played.url)
        assert await engine.healthy()
        assert await engine.max_model_len() == 99
        await engine.close()
    assert [request.path for request in played.received] == ["/health", "/v1/models"]


def likeliest(logprob: float) -> list[Part]:
    """The answer to the question for the log-prob of the likeliest token."""
    return answer(200, {"output_ids": [9], "meta_info": {"output_top_logprobs": [[[logprob, 11, None]]]}})


@pytest.mark.parametrize(("at_one", "at_two", "kept"), [(-1.5, -1.5, False), (-1.5, -3.0, True)])
async def test_logprobs_from_before_the_temperature_are_dropped(at_one: float, at_two: float, kept: bool) -> None:
    streamed = sse(event(0, 4, incremental=False, finish=STOP))
    async with plays(likeliest(at_one), likeliest(at_two), streamed) as played:
        engine = SglangEngine(played.url, 5.0)
        for _ in range(2):
            [chunk] = [c async for c in engine.generate("base", [1, 2], params(temperature=0.7))]
            assert (chunk.logprobs is not None) is kept
            assert chunk.token_ids == [11, 12, 13, 2]
        await engine.close()
    asked = [request.body for request in played.received]
    assert [body["sampling_params"]["temperature"] for body in asked] == [1.0, 2.0, 0.7, 0.7], "found out once"
    assert asked[0]["sampling_params"]["top_k"] == -1, "with 1 the server answers as at temperature 0"


async def test_logprobs_of_a_sampling_that_the_server_takes_for_greedy_are_dropped() -> None:
    async with plays(sse(event(0, 4, incremental=False, finish=STOP))) as played:
        [dropped] = await ask(played.url, temperature=0.7, top_k=1)
        [kept] = await ask(played.url, temperature=0.0, top_k=1)
    assert dropped.logprobs is None
    assert kept.logprobs == [-0.5, -0.25, -1.0, -2.0]


async def test_a_server_that_refuses_the_question_still_answers() -> None:
    refused = answer(400, {"error": {"message": "no top_logprobs_num here"}})
    async with plays(refused, sse(event(0, 4, incremental=False, finish=STOP))) as played:
        [chunk] = await ask(played.url, temperature=0.7)
    assert (chunk.token_ids, chunk.logprobs) == ([11, 12, 13, 2], None)


async def test_penalties_and_min_p_are_passed_on_where_they_change_something() -> None:
    given = {"min_p": 0.1, "frequency_penalty": 0.3, "presence_penalty": -0.5, "repetition_penalty": 1.1}
    async with plays(sse(event(0, 4, incremental=False, finish=STOP))) as played:
        engine = SglangEngine(played.url, 5.0)
        engine.logprob_check.known = True
        for changes in (given, {}):
            chunks = [chunk async for chunk in engine.generate("base", [1, 2], params(**changes))]
            assert chunks[0].logprobs is not None
        engine.logprob_check.known = False
        (dropped,) = [chunk async for chunk in engine.generate("base", [1, 2], params(**given))]
        await engine.close()
    first, second, _ = (request.body["sampling_params"] for request in played.received)
    assert {name: first[name] for name in given} == given
    assert not given.keys() & second.keys()
    assert dropped.logprobs is None, "of before the temperature, and so perhaps of before the penalties"


async def test_events_of_any_other_form_are_chunks_or_a_sentence() -> None:
    events = *spoiled(event(0, 2, incremental=False, finish=STOP)), *spoiled({"error": {"message": "m"}})
    assert await refused_for_their_form(ask, events) > 50
