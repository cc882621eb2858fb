"""The HTTP API: routes, access, limits and errors. What a request means is decided in `capture`."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import Any, TypeVar

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.types import Message as ASGIMessage

from turnwise import __version__
from turnwise.config import Config
from turnwise.errors import EngineError, JournalError
from turnwise.gateway.auth import check_token, client_key
from turnwise.gateway.capture import Capture, Client, Delta, Final, OpenTurn
from turnwise.gateway.chat import ChunkWriter, completion_body, logprobs_body, parse_chat
from turnwise.gateway.errors import ApiError, as_api_error
from turnwise.gateway.metrics import Metrics
from turnwise.gateway.serving import MODEL_NAME
from turnwise.types import TurnKind

log = logging.getLogger(__name__)

SESSION_ID = re.compile(r"^[A-Za-z0-9._:@=+-]{1,200}$")
OPEN_ROUTES = ("/healthz", "/readyz")
T = TypeVar("T")


def make_app(
    config: Config,
    capture: Capture,
    token: str | None,
    background: Callable[[], AbstractAsyncContextManager[None]],
) -> FastAPI:
    """The application. `token` None leaves it open; `background` gives the context in which it runs."""
    metrics = Metrics()

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncGenerator[None, None]:
        async with background():
            yield
            await capture.drain()

    app = FastAPI(title="turnwise", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.capture = capture
    app.state.metrics = metrics

    for kind in (ApiError, EngineError, JournalError, Exception):
        app.add_exception_handler(kind, _refuse)
    app.add_exception_handler(HTTPException, _refuse_route)
    app.add_middleware(Guard, token=token, metrics=metrics)

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        """The gateway runs."""
        return {"status": "ok"}

    @app.get("/readyz")
    async def readyz() -> Response:
        """The gateway can answer: its engine is there."""
        if await capture.engine.healthy():
            return JSONResponse({"status": "ready", "version": capture.versions.number})
        return ApiError(503, "the engine does not answer yet", headers={"Retry-After": "1"}).response()

    @app.get("/metrics")
    async def metrics_text() -> Response:
        status = await asyncio.to_thread(capture.journal.status)
        return PlainTextResponse(metrics.render(status), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/v1/status")
    async def status() -> dict[str, Any]:
        """The figures of `turnwise status`."""
        figures = await asyncio.to_thread(capture.journal.status)
        serving = {"number": capture.versions.number, "error": capture.versions.error}
        return figures | {"version": serving, "failed_requests": metrics.failed, "model": config.model.path}

    @app.get("/v1/models")
    @app.get("/s/{session}/v1/models")
    async def models(session: str | None = None) -> dict[str, Any]:
        """The serving policy, the base model and every published version."""
        limit = await capture.engine.max_model_len()
        versions = await asyncio.to_thread(capture.journal.list_versions)
        names = [MODEL_NAME, f"{MODEL_NAME}@base", *(f"{MODEL_NAME}@v{v.number}" for v in versions)]
        return {
            "object": "list",
            "data": [
                {"id": name, "object": "model", "created": 0, "owned_by": "turnwise", "max_model_len": limit}
                for name in names
            ],
        }

    @app.post("/v1/chat/completions")
    @app.post("/s/{session}/v1/chat/completions")
    async def chat_completions(request: Request, session: str | None = None) -> Response:
        """OpenAI's chat completions, streamed or whole."""
        started = time.monotonic()
        parsed = parse_chat(await read_body(request, config.server.max_body_mb))
        client = read_client(request, session)
        with metrics.open_turn.time():
            turn = await capture.open_turn(parsed, client)
        headers = {
            "x-turnwise-turn-id": turn.id,
            "x-turnwise-session-id": turn.session_id,
            "x-turnwise-version": str(turn.version),
        }
        events = _timed(capture.stream(turn), config.server.request_timeout_s, metrics, started)
        if parsed.stream:
            # The first event is awaited before the status line goes out, so that a full queue is a 429, not a 200.
            first = await anext(events)
            body = _event_stream(capture, turn, first, events)
            return StreamingResponse(
                body, media_type="text/event-stream", headers=headers | {"Cache-Control": "no-cache"}
            )
        final, tokens = await _until_gone(request, _collect(events))
        logprobs = logprobs_body(_token_texts(capture, tokens)) if parsed.logprobs else None
        body = completion_body(turn.id, parsed.model, final.message, final.finish_reason, final.usage, logprobs)
        return JSONResponse(body, headers=headers)

    @app.post("/v1/sessions/{session_id}/close")
    async def close_session(session_id: str) -> dict[str, Any]:
        """End a session: no next state will come."""
        if not await asyncio.to_thread(capture.journal.close_session, session_id, "closed by the client"):
            raise ApiError(404, f"there is no session {session_id!r}", code="session_not_found")
        return {"id": session_id, "closed": True}

    @app.post("/v1/turns/{turn_id}/feedback")
    async def feedback(turn_id: str, request: Request) -> dict[str, Any]:
        """The person's own score (-1, 0, 1) and/or words on a turn; they outrank the judge."""
        score, text = parse_feedback(await read_body(request, config.server.max_body_mb))
        try:
            result = await asyncio.to_thread(capture.journal.feedback, turn_id, score, text)
        except JournalError as e:
            status = 404 if "there is no turn" in str(e) else 409
            raise ApiError(status, str(e), code="feedback_refused") from e
        return {"turn": turn_id, "result": result}

    return app


class Guard:
    """Checks the token before anything is read, and counts answers by route and status."""

    def __init__(self, app: ASGIApp, token: str | None, metrics: Metrics) -> None:
        self.app = app
        self.token = token
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def counted(message: ASGIMessage) -> None:
            if message["type"] == "http.response.start":
                self.metrics.count(_route_label(scope["path"]), message["status"])
            await send(message)

        try:
            if scope["path"] not in OPEN_ROUTES:
                check_token(Request(scope), self.token)
        except ApiError as e:
            await e.response()(scope, receive, counted)
            return
        await self.app(scope, receive, counted)


async def _refuse(request: Request, error: Exception) -> Response:
    answer = as_api_error(error)
    if answer.status >= 500:
        log.error("%s %s: %s", request.method, request.url.path, error, exc_info=answer.status == 500)
    return answer.response()


async def _refuse_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    missing = error.status_code == 404
    message = f"{request.method} {request.url.path} does not exist here" if missing else error.detail
    return ApiError(error.status_code, str(message)).response()


# -- reading requests -----------------------------------------------------------------------------------------------


async def read_body(request: Request, limit_mb: float) -> bytes:
    """The whole body, refused with 413 as soon as it is known to be too large."""
    limit = int(limit_mb * 1_000_000)
    too_large = ApiError(
        413, f"the request body is larger than {limit_mb:g} MB (server.max_body_mb)", code="body_too_large"
    )
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > limit:
        raise too_large
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise too_large
        parts.append(part)
    return b"".join(parts)


def read_client(request: Request, url_session: str | None) -> Client:
    """Who asks, from the headers and the URL. Raises ApiError for a header that cannot be honoured."""
    headers = request.headers
    session = url_session or headers.get("x-session-id")
    if session is not None and not SESSION_ID.match(session):
        raise ApiError(400, "a session id is 1 to 200 letters, digits or any of . _ : @ = + -", param="X-Session-Id")
    turn_type = headers.get("x-turn-type")
    if turn_type is not None and turn_type not in set(TurnKind):
        raise ApiError(400, "X-Turn-Type is 'main' or 'side'", param="X-Turn-Type")
    done = headers.get("x-session-done", "").strip().lower()
    if done not in ("", "0", "1", "true", "false"):
        raise ApiError(400, "X-Session-Done is 'true' or 'false'", param="X-Session-Done")
    retries = headers.get("x-stainless-retry-count", "0")
    return Client(
        key=client_key(request),
        session_id=session,
        source="url" if url_session else ("header" if session else "lineage"),
        turn_type=turn_type,
        session_done=done in ("1", "true"),
        retry_key=headers.get("idempotency-key") or headers.get("x-idempotency-key"),
        is_retry=retries.isdigit() and int(retries) > 0,
    )


def parse_feedback(body: bytes) -> tuple[int | None, str | None]:
    """Score and text of a feedback body. Raises ApiError (400)."""
    try:
        raw = json.loads(body)
    except (json.JSONDecodeError, UnicodeDecodeError) as e:
        raise ApiError(400, f"the request body is not valid JSON: {e}", code="invalid_json") from e
    if not isinstance(raw, dict) or set(raw) - {"score", "text"}:
        raise ApiError(400, "feedback is an object with 'score' (-1, 0 or 1) and/or 'text'", code="invalid_value")
    score, text = raw.get("score"), raw.get("text")
    if score is not None and (isinstance(score, bool) or score not in (-1, 0, 1)):
        raise ApiError(400, "score is -1, 0 or 1", param="score", code="invalid_value")
    if text is not None and (not isinstance(text, str) or not text.strip() or len(text) > 8000):
        raise ApiError(400, "text is a non-empty string of at most 8000 characters", param="text", code="invalid_value")
    if score is None and text is None:
        raise ApiError(400, "send a score, a text, or both", code="missing_parameter")
    return (None if score is None else int(score)), text


# -- answering ------------------------------------------------------------------------------------------------------


async def _timed(
    events: AsyncGenerator[Delta | Final, None], limit_s: float, metrics: Metrics, started: float
) -> AsyncGenerator[Delta | Final, None]:
    """The events, with their waiting times counted and an end to all patience.

    The engine client limits the wait for each token, so looking at the clock between events is enough.
    """
    first = True
    with metrics.in_flight.track_inprogress():
        async with aclosing(events):
            async for event in events:
                if first:
                    metrics.first_token.observe(time.monotonic() - started)
                    first = False
                if isinstance(event, Final):
                    metrics.tokens.labels("prompt").inc(event.usage.prompt_tokens)
                    metrics.tokens.labels("response").inc(event.usage.completion_tokens)
                yield event
                if time.monotonic() - started > limit_s:
                    raise ApiError(504, f"the answer took longer than {limit_s:g} s (server.request_timeout_s)")


async def _collect(events: AsyncGenerator[Delta | Final, None]) -> tuple[Final, list[tuple[int, float]]]:
    tokens: list[tuple[int, float]] = []
    async with aclosing(events):
        async for event in events:
            if isinstance(event, Final):
                return event, tokens
            tokens += event.tokens
    raise ApiError(502, "the engine gave no answer", code="engine_error")


async def _until_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled as soon as the client hangs up."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_hang_up(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
        return await task
    except asyncio.CancelledError:
        raise ApiError(499, "the client closed the connection before the answer was complete") from None
    finally:
        gone.cancel()
        task.cancel()


async def _hang_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _event_stream(
    capture: Capture, turn: OpenTurn, first: Delta | Final, events: AsyncGenerator[Delta | Final, None]
) -> AsyncGenerator[bytes, None]:
    request = turn.request
    writer = ChunkWriter(turn.id, request.model, request.include_usage)
    yield writer.delta({"role": "assistant", "content": ""})
    event: Delta | Final | None = first
    async with aclosing(events):
        try:
            while event is not None:
                if isinstance(event, Final):
                    for part in _last_events(writer, event):
                        yield part
                    return
                logprobs = logprobs_body(_token_texts(capture, event.tokens)) if request.logprobs else None
                if event.content or (logprobs and event.tokens):
                    yield writer.delta({"content": event.content}, logprobs=logprobs)
                event = await anext(events, None)
        except Exception as e:
            error = as_api_error(e)
            if error.status == 500:
                log.exception("turn %s failed in the middle of its answer", turn.id)
            yield writer.error(error)


def _last_events(writer: ChunkWriter, final: Final) -> list[bytes]:
    parts: list[bytes] = []
    if final.tail:
        parts.append(writer.delta({"content": final.tail}))
    for i, call in enumerate(final.message.get("tool_calls") or []):
        parts.append(writer.delta({"tool_calls": [{"index": i} | call]}))
    parts.append(writer.delta({}, finish_reason=final.finish_reason))
    parts.append(writer.usage(final.usage))
    parts.append(writer.done())
    return [part for part in parts if part]


def _token_texts(capture: Capture, tokens: list[tuple[int, float]]) -> list[tuple[str, float]]:
    return [(capture.renderer.decode([token_id]), logprob) for token_id, logprob in tokens]


def _route_label(path: str) -> str:
    """A path with its ids taken out, so that figures do not grow with sessions."""
    path = re.sub(r"^/s/[^/]+", "/s/:session", path)
    path = re.sub(r"^(/v1/(?:sessions|turns))/[^/]+", r"\1/:id", path)
    known = ("/healthz", "/readyz", "/metrics", "/v1/", "/s/:session/v1/")
    return path if path.startswith(known) and len(path) < 60 else "other"
