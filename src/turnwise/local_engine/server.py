"""The HTTP side of the local engine: checks requests, hands them to the scheduler, and writes what comes back.

It computes nothing itself. Field names, event order and error bodies are vLLM's, so that one client speaks to both.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from turnwise.errors import EngineError
from turnwise.local_engine import protocol
from turnwise.local_engine.access import KeyGuard
from turnwise.local_engine.model.eyes import Eyes, look_at
from turnwise.local_engine.model.runner import BASE
from turnwise.local_engine.pooling import MAX_TOKENS, Deliver, LogprobJob, PauseJob, PoolingJob
from turnwise.local_engine.protocol import CompletionRequest, LoadAdapter, PoolingRequest, UnloadAdapter
from turnwise.local_engine.registry import WeightsRegistry
from turnwise.local_engine.requests import Output
from turnwise.local_engine.requests import Request as EngineRequest
from turnwise.local_engine.scheduler import Scheduler
from turnwise.local_engine.text import Decoder, TextStream
from turnwise.pictures.placed import keys_of

SIGN_OF_LIFE_S = 10.0
"""A stream with nothing to say for this long says so, since a client takes silence for a dead engine."""
_DISCONNECT_POLL_S = 0.1
POOLING_S = 60.0
"""How long a pooling request waits behind answers before it is told to come again."""


@dataclass(frozen=True, slots=True)
class EngineApp:
    """The parts that requests meet, and the limits they are checked against."""

    scheduler: Scheduler
    registry: WeightsRegistry
    decoder: Decoder
    model_path: str
    max_model_len: int
    vocab_size: int
    layers: int
    started: int
    eyes: Eyes | None = None


def make_app(engine: EngineApp, key: str | None = None) -> FastAPI:
    """The engine's ASGI application. With a ``key``, whoever lacks it gets no more than /health."""
    app = FastAPI(title="turnwise local engine", openapi_url=None)
    if key is not None:
        app.add_middleware(KeyGuard, key=key)

    @app.exception_handler(EngineError)
    async def _engine_error(_: Request, e: EngineError) -> JSONResponse:
        headers = {"Retry-After": "1"} if e.status in (429, 503) else None
        return JSONResponse(protocol.error(str(e), e.status), e.status, headers)

    @app.exception_handler(RequestValidationError)
    async def _invalid(_: Request, e: RequestValidationError) -> JSONResponse:
        return JSONResponse(protocol.error("; ".join(map(_explain, e.errors())), 400), 400)

    @app.get("/health")
    async def health() -> Response:
        return Response(status_code=200 if engine.scheduler.alive else 503)

    @app.get("/load")
    async def load() -> JSONResponse:
        return JSONResponse({"server_load": engine.scheduler.load})

    @app.get("/v1/models")
    async def models() -> JSONResponse:
        cards = [
            {
                "id": w.name,
                "object": "model",
                "created": engine.started,
                "owned_by": "turnwise",
                "root": engine.model_path if w.adapter is None else w.adapter.path,
                "parent": None if w.adapter is None else BASE,
                "max_model_len": engine.max_model_len,
            }
            for w in engine.registry.list()
        ]
        return JSONResponse({"object": "list", "data": cards})

    @app.post("/v1/load_lora_adapter")
    async def load_adapter(body: LoadAdapter) -> Response:
        await asyncio.to_thread(engine.registry.load, body.lora_name, body.lora_path, replace=body.load_inplace)
        return PlainTextResponse(f"Success: LoRA adapter '{body.lora_name}' added successfully.")

    @app.post("/v1/unload_lora_adapter")
    async def unload_adapter(body: UnloadAdapter) -> Response:
        engine.registry.unload(body.lora_name)
        return PlainTextResponse(f"Success: LoRA adapter '{body.lora_name}' removed successfully.")

    @app.post("/v1/completions")
    async def completions(body: CompletionRequest, http: Request) -> Response:
        _check(body, engine)
        of_prompt = None if body.prompt_logprobs is None else await _logprobs(body.prompt, engine)
        answer = await _submit(body, engine)
        if body.stream:
            return _EventStream(_events(body, answer, engine.decoder), lambda: engine.scheduler.cancel(answer.request))
        return await _whole(body, answer, engine, http, of_prompt)

    @app.post("/pooling")
    async def pooling(body: PoolingRequest) -> JSONResponse:
        _check_pooling(body, engine)
        vectors = await _pool(body, engine)
        return JSONResponse(protocol.pooled(body, f"pool-{uuid.uuid4().hex}", int(time.time()), vectors))

    return app


@dataclass(frozen=True, slots=True)
class _Answer:
    """A request under way and what it has delivered. Whoever takes one cancels its request when done with it."""

    request: EngineRequest
    queue: asyncio.Queue[Output]

    async def outputs(self) -> AsyncIterator[Output | None]:
        """What was sampled, as it comes; None as a sign of life while there is nothing, as for a queued request."""
        while True:
            try:
                out = await asyncio.wait_for(self.queue.get(), SIGN_OF_LIFE_S)
            except TimeoutError:
                yield None
                continue
            yield out
            if out.finish is not None:
                return


class _EventStream(StreamingResponse):
    """Server-sent events that cancel their request when they end in any way, even before the first one was sent."""

    def __init__(self, events: AsyncIterator[bytes], cancel: Callable[[], None]) -> None:
        super().__init__(events, media_type="text/event-stream")
        self._cancel = cancel

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._cancel()


def _check_ids(field: str, ids: list[int], engine: EngineApp) -> None:
    wrong = next((i for i in ids if not 0 <= i < engine.vocab_size), None)
    if wrong is not None:
        raise EngineError(f"{field}: token id {wrong} is out of the vocabulary (0 to {engine.vocab_size - 1})", 400)


def _check_pooling(body: PoolingRequest, engine: EngineApp) -> None:
    _check_ids("input", body.input, engine)
    if body.model != BASE:
        raise EngineError(f"model: hidden states are those of {BASE!r} alone", 400)
    if any(not 0 < layer < engine.layers for layer in body.layers):
        raise EngineError(f"layers: this model has {engine.layers}; 1 to {engine.layers - 1} can be asked for", 400)
    if len(body.input) > engine.max_model_len:
        raise EngineError(f"input: this model's maximum context length is {engine.max_model_len} tokens", 400)
    if any(not 0 <= begin < end <= len(body.input) for begin, end in body.spans):
        raise EngineError(f"spans: each is [begin, end) within the {len(body.input)} tokens of the input", 400)


async def _pool(body: PoolingRequest, engine: EngineApp) -> list[list[float]]:
    """The vectors. Raises EngineError 429 and 503 where the request should come again."""
    return await _in_pauses(
        lambda deliver: PoolingJob(engine.registry.base, body.input, body.layers, body.spans, deliver), engine
    )


async def _logprobs(prompt: list[int], engine: EngineApp) -> list[float]:
    """The log-prob of each token of a prompt but the first. Raises EngineError as `_pool`."""
    if len(prompt) < 2:
        return []
    return (await _in_pauses(lambda deliver: LogprobJob(engine.registry.base, prompt, deliver), engine))[0]


async def _in_pauses(make: Callable[[Deliver], PauseJob], engine: EngineApp) -> list[list[float]]:
    """What a job gives that runs between answers. Raises EngineError 429 and 503 where it should come again."""
    loop = asyncio.get_running_loop()
    done: asyncio.Queue[list[list[float]] | str] = asyncio.Queue()

    def deliver(result: list[list[float]] | str) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(done.put_nowait, result)

    job = make(deliver)
    engine.scheduler.pool(job)
    try:
        result = await asyncio.wait_for(done.get(), POOLING_S)
    except TimeoutError as e:
        raise EngineError(f"answers left no time for it within {POOLING_S:g} s; try again later", 503) from e
    finally:
        job.cancelled = True
    if isinstance(result, str):
        raise EngineError(result, 500)
    return result


def _check(body: CompletionRequest, engine: EngineApp) -> None:
    _check_ids("prompt", body.prompt, engine)
    if len(body.prompt) + body.max_tokens > engine.max_model_len:
        raise EngineError(
            f"prompt: this model's maximum context length is {engine.max_model_len} tokens, but you asked for "
            f"{len(body.prompt) + body.max_tokens} ({len(body.prompt)} in the prompt, {body.max_tokens} to come)",
            400,
        )
    if body.include_stop_str_in_output:
        raise EngineError("include_stop_str_in_output: only false is supported", 400)
    if body.prompt_logprobs is not None and (body.stream or body.model != BASE):
        raise EngineError(f"prompt_logprobs: only without stream, and of {BASE!r}", 400)
    if body.prompt_logprobs is not None and body.features is not None:
        raise EngineError("prompt_logprobs: of prompts without pictures alone", 400)
    if body.prompt_logprobs is not None and len(body.prompt) > MAX_TOKENS:
        raise EngineError(f"prompt_logprobs: for prompts of at most {MAX_TOKENS} tokens", 400)
    if body.stream_options is not None and not body.stream:
        raise EngineError("stream_options: only allowed with stream = true", 400)


async def _submit(body: CompletionRequest, engine: EngineApp) -> _Answer:
    """Queue the request. Raises EngineError when the model is unknown or the queue is full."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[Output] = asyncio.Queue()
    registry, params = engine.registry, body.sampling()
    given = [] if body.features is None else body.features.given()
    placed, seen = await asyncio.to_thread(look_at, body.prompt, given, engine.eyes)
    # An adapter whose merged copy was dropped is merged again, off this thread.
    merged = registry.is_merged(body.model)
    weights = registry.acquire(body.model) if merged else await asyncio.to_thread(registry.acquire, body.model)
    request = EngineRequest(
        weights=weights,
        tokens=list(body.prompt),
        params=params,
        text=TextStream(engine.decoder, params.stop, skip_special_tokens=body.skip_special_tokens),
        deliver=lambda out: _hand_over(loop, queue, out),
        release=lambda: registry.release(weights),
        rng=random.Random(params.seed),
        prompt_len=len(body.prompt),
        pictures=seen,
        keys=keys_of(body.prompt, placed) if placed else [],
    )
    try:
        engine.scheduler.submit(request)
    except EngineError:
        registry.release(weights)
        raise
    return _Answer(request, queue)


def _hand_over(loop: asyncio.AbstractEventLoop, queue: asyncio.Queue[Output], out: Output) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(queue.put_nowait, out)


async def _events(body: CompletionRequest, answer: _Answer, decoder: Decoder) -> AsyncIterator[bytes]:
    """The answer as server-sent events: a chunk for every step, usage if asked for, ``[DONE]``."""
    head = _head(body)
    count, cached, first = 0, 0, True
    async for out in answer.outputs():
        if out is None:
            yield b": waiting\n\n"
            continue
        if out.error is not None:
            yield _event(protocol.error(out.error, 500))
            break
        count, cached = count + len(out.token_ids), out.cached_tokens
        choice = protocol.choice(body, out, _pieces(body, out, decoder), with_prompt=first)
        yield _event({**head, "choices": [choice]})
        first = False
    if body.stream_options is not None and body.stream_options.include_usage:
        yield _event({**head, "choices": [], "usage": protocol.usage(len(body.prompt), count, cached)})
    yield b"data: [DONE]\n\n"


async def _whole(
    body: CompletionRequest, answer: _Answer, engine: EngineApp, http: Request, of_prompt: list[float] | None
) -> JSONResponse:
    """The answer in one body. A client that hangs up cancels it."""
    parts: list[Output] = []

    async def collect() -> None:
        parts.extend([out async for out in answer.outputs() if out is not None])

    task = asyncio.create_task(collect())
    try:
        while not (await asyncio.wait({task}, timeout=_DISCONNECT_POLL_S))[0]:
            if await http.is_disconnected():
                raise EngineError("the client went away", 499)
        await task
    finally:
        task.cancel()
        engine.scheduler.cancel(answer.request)
    last = parts[-1]
    if last.error is not None:
        raise EngineError(last.error, 500)
    whole = replace(
        last,
        token_ids=[i for p in parts for i in p.token_ids],
        logprobs=[x for p in parts for x in p.logprobs],
        text="".join(p.text for p in parts),
    )
    counts = protocol.usage(len(body.prompt), len(whole.token_ids), last.cached_tokens)
    pieces = _pieces(body, whole, engine.decoder)
    choice = protocol.choice(body, whole, pieces, with_prompt=True, of_prompt=of_prompt)
    return JSONResponse({**_head(body), "choices": [choice], "usage": counts})


def _head(body: CompletionRequest) -> dict[str, object]:
    return {
        "id": f"cmpl-{uuid.uuid4().hex}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": body.model,
    }


def _pieces(body: CompletionRequest, out: Output, decoder: Decoder) -> list[str]:
    if body.logprobs is None:
        return []
    return [decoder.decode([i], skip_special_tokens=False) for i in out.token_ids]


def _event(data: dict[str, object]) -> bytes:
    return b"data: " + json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def _explain(detail: dict[str, object]) -> str:
    where = detail["loc"]
    assert isinstance(where, tuple)
    field = ".".join(str(part) for part in where[1:] if not str(part).startswith(("list[", "str"))) or "body"
    if detail["type"] == "extra_forbidden":
        return f"{field}: no such field"
    return f"{field}: {detail['msg']}"
