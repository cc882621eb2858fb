"""Pictures to a vLLM server, by what is asked of it and how its answers are taken: servers played from bytes.

A real server is met in tests/pictures/test_served.py.
"""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.engines.test_examine import HEALTHY, LORA, remarks
from tests.engines.test_vllm_client import OURS, VLLM, one_token, params
from tests.support.raw_http import answer, plays, sse
from turnwise.engines.base import Chunk
from turnwise.engines.token_route import ROUTE
from turnwise.engines.vllm import VllmEngine
from turnwise.errors import EngineError
from turnwise.pictures.placed import PlacedPicture, ShownPicture

IDS = [1, 2, 8, 9, 9, 8, 3, 8, 9, 8, 4]
SHUT = answer(403, {"error": {"message": "Scale-out endpoints are disabled. Restart with --enable-scale-out."}})
OPEN = answer(400, {"error": {"message": "token_ids is missing"}})


def file(kind: str, mode: str = "RGB", size: tuple[int, int] = (3, 2)) -> bytes:
    out = io.BytesIO()
    Image.new(mode, size, (10, 200, 30, 40)[: len(mode)]).save(out, kind)
    return out.getvalue()


def shown(start: int, end: int, data: bytes) -> ShownPicture:
    return ShownPicture(PlacedPicture("ab" * 32, start, end, 9, 3, 2, 3, 2), data)


PICTURES = [shown(2, 6, file("PNG", "RGBA")), shown(7, 10, file("JPEG"))]


def event(ids: list[int] | None, logprob: float = -0.5) -> dict[str, Any]:
    choice = {"text": "a", "token_ids": [7], "logprobs": {"content": [{"logprob": logprob}]}, "finish_reason": "stop"}
    return {"prompt_token_ids": ids, "choices": [choice | {"stop_reason": "x"}]}


async def ask(url: str, **changes: Any) -> list[Chunk]:
    engine = VllmEngine(url, 5.0)
    try:
        return [c async for c in engine.generate("v3", IDS, params(**changes), pictures=PICTURES)]
    finally:
        await engine.close()


async def test_each_picture_goes_as_one_placeholder_and_as_the_pixels_that_the_trainer_reads() -> None:
    usage = {"choices": [], "usage": {"prompt_tokens_details": {"cached_tokens": 5}}}
    stream = [*sse(event(IDS))[:-1], *sse(usage)[1:]]
    async with plays(VLLM, stream) as played:
        chunks = await ask(played.url, seed=4, stop=("x",), structured={"type": "object"}, priority=1)
    sent = played.received[-1]
    assert sent.path == ROUTE
    body = sent.body
    assert body["token_ids"] == [1, 2, 9, 3, 9, 4] and (body["model"], body["priority"]) == ("v3", 1)
    assert body["stream"] and body["return_token_ids"] and body["output_mode"] == "text"
    wanted = {"max_tokens": 8, "temperature": 1.0, "top_k": -1, "seed": 4, "stop": ["x"], "logprobs": 0}
    assert body["sampling_params"].items() >= wanted.items()
    assert body["sampling_params"]["structured_outputs"] == {"json": {"type": "object"}}
    for part, picture in zip(body["content_parts"], PICTURES, strict=True):
        assert part["type"] == "image_url"
        with Image.open(io.BytesIO(base64.b64decode(part["url"].partition(",")[2]))) as seen:
            assert (seen.format, seen.mode, seen.size) == ("PNG", "RGB", (3, 2))
            with Image.open(io.BytesIO(picture.data)) as own:
                assert seen.tobytes() == own.convert("RGB").tobytes()
    first = chunks[0]
    assert (first.token_ids, first.logprobs, first.finish_reason, first.stop_string) == ([7], [-0.5], "stop", "x")
    assert chunks[-1].cached_tokens == 5


@pytest.mark.parametrize("ids", [None, [*IDS, 5], [1, 2, 9, 3, 9, 4]])
async def test_an_answer_to_other_ids_is_none(ids: list[int] | None) -> None:
    stream = [*sse({"choices": []})[:-1], *sse(event(ids))[1:]]
    async with plays(VLLM, stream) as played:
        with pytest.raises(EngineError, match="makes other ids of the pictures"):
            await ask(played.url)


async def test_an_answer_of_another_form_is_a_sentence_and_missing_log_probs_are_none() -> None:
    for said, match in ({"content": 5}, "another form"), ("text", "another form"):
        wrong = event(IDS)
        wrong["choices"][0]["logprobs"] = said
        async with plays(VLLM, sse(wrong)) as played:
            with pytest.raises(EngineError, match=match):
                await ask(played.url)
    for said in 5, [1], "x":
        async with plays(VLLM, sse(said)) as played:
            with pytest.raises(EngineError, match="no JSON object"):
                await ask(played.url)
    lacking = event(IDS)
    lacking["choices"][0]["logprobs"] = {"content": [{}]}
    async with plays(VLLM, sse(lacking)) as played:
        [chunk] = await ask(played.url)
    assert (chunk.token_ids, chunk.logprobs) == ([7], None)


async def test_a_server_whose_route_is_shut_is_said_to_be_and_found_at_the_start(tmp_path: Path) -> None:
    async with plays(VLLM, SHUT, SHUT) as played:
        with pytest.raises(EngineError, match="start it with --enable-scale-out"):
            await ask(played.url)
    (tmp_path / "config.json").write_text('{"model_type": "idefics3"}')
    sees = {"model.path": str(tmp_path)}
    found = await remarks(HEALTHY, VLLM, LORA, one_token(0.0), SHUT, **sees)
    assert found[-1][0] == "fault" and "--enable-scale-out" in found[-1][1]
    assert [level for level, _ in await remarks(HEALTHY, VLLM, LORA, one_token(0.0), OPEN, **sees)] == ["ok"]


async def test_another_refusal_is_given_as_it_is() -> None:
    refused = answer(400, {"error": {"message": "the prompt is too long"}})
    full = answer(503, {"error": {"message": "the queue is full"}})
    for said, match in (refused, "the prompt is too long"), (full, "the queue is full"):
        async with plays(VLLM, said) as played:
            with pytest.raises(EngineError, match=match):
                await ask(played.url)
        assert [each.path for each in played.received] == ["/v1/models", ROUTE], "nothing more is asked of it"


async def test_a_server_that_does_not_say_whose_it_is_is_sent_no_files_as_if_it_were_ours() -> None:
    proxied = answer(200, {"data": [{"id": "base", "max_model_len": 64, "owned_by": "a-team"}]})
    async with plays(proxied, sse(event(IDS))) as played:
        await ask(played.url)
    assert played.received[-1].path == ROUTE


async def test_our_own_engine_is_sent_the_files_as_they_are() -> None:
    async with plays(OURS, one_token(-0.5)) as played:
        await ask(played.url)
    body = played.received[-1].body
    assert played.received[-1].path == "/v1/completions" and body["prompt"] == IDS
    assert [base64.b64decode(each) for each in body["features"]["files"]["image"]] == [p.data for p in PICTURES]
