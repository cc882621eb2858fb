"""The HTTP API: routes, access, limits and errors. What a request means is decided in `turn/opening.py`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.types import Message as ASGIMessage

from turnwise import __version__
from turnwise.access_tokens import Tokens
from turnwise.capabilities import capabilities
from turnwise.config import Config
from turnwise.errors import (
    AmbiguousId,
    EngineError,
    JournalError,
    JournalFull,
    JournalUnavailable,
    TooLate,
    UnknownTurn,
)
from turnwise.gateway.auth import BOUND, check_access
from turnwise.gateway.errors import ApiError, as_api_error
from turnwise.gateway.metrics import Metrics
from turnwise.gateway.origins import EXPOSED, Origins
from turnwise.gateway.scopes import refuse_unlisted
from turnwise.gateway.turn.delivery import Answers, answers_in
from turnwise.gateway.turn.opening import TurnOpener
from turnwise.gateway.turn.relaying import UNKNOWN_CONTEXT
from turnwise.gateway.wire.chat.answer import ChatCodec
from turnwise.gateway.wire.http_request import read_body
from turnwise.gateway.wire.messages.answer import MessagesCodec
from turnwise.gateway.wire.openapi import request_schema
from turnwise.gateway.wire.request import Codec, read_object
from turnwise.gateway.wire.responses.answer import ResponsesCodec
from turnwise.gateway.wire.rollouts import parse_announced, parse_outcome
from turnwise.gateway.wrong_path import hint, path_meant
from turnwise.loops.states import read_states, troubled
from turnwise.messages import clean
from turnwise.types import BASE_VERSION, MODEL_NAME, UPSTREAM

log = logging.getLogger(__name__)

MOST_LISTED = 100
"""Versions that /v1/models lists, the newest ones and the serving one."""


def make_app(
    config: Config,
    opener: TurnOpener,
    answering: Answers,
    tokens: Tokens,
    background: Callable[[], AbstractAsyncContextManager[None]],
) -> FastAPI:
    """The application. `background` gives the context in which it runs."""
    metrics = Metrics()

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncGenerator[None, None]:
        async with background():
            yield
            await answering.drain()

    app = FastAPI(title="turnwise", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.opener = opener
    app.state.metrics = metrics

    for kind in (ApiError, EngineError, JournalError, Exception):
        app.add_exception_handler(kind, _refuse)
    app.add_exception_handler(HTTPException, _refuse_route)
    app.add_middleware(Guard, tokens=tokens, auth=config.server.auth, metrics=metrics)
    if config.server.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=config.server.cors_origins,
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=EXPOSED,
        )

    async def refuse(scope: Scope, error: ApiError, receive: Receive, send: Send) -> None:
        metrics.count("other", error.status)
        await _shaped(scope["path"], error)(scope, receive, send)

    app.add_middleware(Origins, server=config.server, refuse=refuse)  # the last one added is asked first

    @app.head("/healthz", include_in_schema=False)
    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        """The gateway runs."""
        return {"status": "ok"}

    @app.head("/readyz", include_in_schema=False)
    @app.get("/readyz")
    async def readyz() -> Response:
        """The gateway can answer: its engine is there. Which loops are in trouble is said either way, and whether the
        journal takes nothing.
        """
        engine = await answering.healthy()
        wrong = troubled(await asyncio.to_thread(read_states, config.home))
        parts = {name: state.open_part() for name, state in wrong.items()}
        if fault := opener.journal.store.write_fault:
            parts["journal"] = _closed(fault)
        degraded = {"degraded": parts} if parts else {}
        if not engine or not opener.versions.ready:
            missing = "the serving version is not loaded yet" if engine else "the engine does not answer yet"
            refusal = ApiError(503, missing, headers={"Retry-After": "1"})
            return JSONResponse(refusal.body() | degraded, refusal.status, refusal.headers)
        return JSONResponse({"status": "ready", "version": opener.versions.number} | degraded)

    @app.get("/metrics")
    async def metrics_text() -> Response:
        status = await asyncio.to_thread(opener.journal.status.figures)
        metrics.unrecorded.set(opener.unrecorded.count)
        return PlainTextResponse(metrics.render(status), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/v1/status")
    async def status() -> dict[str, Any]:
        """The figures of `turnwise status`."""
        figures = await asyncio.to_thread(opener.journal.status.figures)
        # A version that was published a moment ago is loaded first; until then the one before answers.
        serving = {"number": opener.versions.number, "error": opener.versions.error}
        serving["wanted"] = figures["version"]["number"]
        engine = {"kind": config.engine.kind, "trainable": capabilities(config).trainable}
        states = await asyncio.to_thread(read_states, config.home)
        return figures | {
            "supervised": {name: asdict(state) for name, state in states.items()},
            "version": serving,
            "failed_requests": metrics.failed,
            "unrecorded": opener.unrecorded.count,
            "model": config.model.path,
            "engine": engine,
        }

    relayed = config.engine.kind == "upstream"
    owner = UPSTREAM if relayed else MODEL_NAME

    async def context() -> int | None:
        told = await answering.max_model_len()
        return None if told == UNKNOWN_CONTEXT else told

    @app.get("/v1/models")
    @app.get("/s/{session}/v1/models")
    async def models(session: str | None = None) -> dict[str, Any]:
        """The serving policy, the base model and the newest published versions; an older one is found by its name."""
        limit = await context()
        newest = await asyncio.to_thread(opener.journal.versions.newest, MOST_LISTED + 1)
        listed = sorted({*newest[-MOST_LISTED:], opener.versions.number} - {BASE_VERSION})
        names = [MODEL_NAME, f"{MODEL_NAME}@base", *(f"{MODEL_NAME}@v{number}" for number in listed)]
        return {
            "object": "list",
            "data": [_model(name, limit, owner) for name in names],
            "has_more": len(newest) > MOST_LISTED,
            "first_id": names[0],
            "last_id": names[-1],
        }

    @app.get("/v1/models/{name}")
    @app.get("/s/{session}/v1/models/{name}")
    async def model(name: str, session: str | None = None) -> dict[str, Any]:
        """One of them."""
        await opener.versions.resolve(name)
        return _model(name, await context(), owner)

    @app.api_route("/v1/responses/{response_id}", methods=["GET", "DELETE"], include_in_schema=False)
    async def no_response(response_id: str) -> None:
        """What OpenAI's SDK would ask for."""
        text = "responses are not given out again or deleted here; previous_response_id continues one"
        raise ApiError(404, f"{text}, and `turnwise sessions show` shows what is recorded", code="not_offered")

    codecs: list[tuple[str, Codec]] = [
        ("/v1/chat/completions", ChatCodec(choices=relayed and config.engine.api == "openai")),
        ("/v1/responses", ResponsesCodec()),
        ("/v1/messages", MessagesCodec()),
    ]
    for path, codec in codecs:
        answer = answers_in(codec, config, opener, answering, metrics)
        body = request_schema(codec.name)
        app.add_api_route(path, answer, methods=["POST"], name=codec.name, openapi_extra=body)
        in_session = f"{codec.name} in a session"
        app.add_api_route("/s/{session}" + path, answer, methods=["POST"], name=in_session, openapi_extra=body)

    @app.post("/v1/messages/count_tokens")
    @app.post("/s/{session}/v1/messages/count_tokens")
    async def count_tokens(request: Request, session: str | None = None) -> dict[str, int]:
        """Tokens of the prompt that a messages request would make."""
        parsed = MessagesCodec().parse_count(await read_body(request, config.server.max_body_mb))
        return {"input_tokens": await opener.count_tokens(parsed)}

    @app.post("/v1/sessions/{session_id}/close")
    async def close_session(session_id: str) -> dict[str, Any]:
        """End a session: no next state will come."""
        if not await asyncio.to_thread(opener.journal.sessions.close, session_id, "closed by the client"):
            raise ApiError(404, f"there is no session {session_id!r}", code="session_not_found")
        return {"id": session_id, "closed": True}

    @app.post("/v1/sessions/{session_id}/outcome")
    async def outcome(session_id: str, request: Request) -> dict[str, Any]:
        """How a rollout ended: a number, or why there is none. The same again is harmless."""
        said = parse_outcome(await read_body(request, config.server.max_body_mb))
        post = opener.journal.rollouts.post
        group = await asyncio.to_thread(post, session_id, said.outcome, said.failure, said.masked, said.cut_off)
        told = {"id": session_id, "outcome": said.outcome, "failure": said.failure}
        whole = asdict(group)
        return told | {"steps": whole.pop("steps"), "group": whole}

    @app.post("/v1/sessions/{session_id}/rollout")
    async def announce(session_id: str, request: Request) -> dict[str, Any]:
        """Say of a session that it is a rollout, so that its agent need not. The same again is harmless."""
        said = parse_announced(await read_body(request, config.server.max_body_mb), session_id, config.streams)
        announce = opener.journal.rollouts.announce
        steps = await asyncio.to_thread(announce, session_id, said.rollout, said.instead_of)
        opener.playing.news_of(session_id)
        return {"id": session_id} | asdict(said.rollout) | {"steps": steps}

    @app.post("/v1/turns/{turn_id}/feedback")
    async def feedback(turn_id: str, request: Request) -> dict[str, Any]:
        """The person's own score (-1, 0, 1) and/or words on a turn; they outrank the judge.

        The turn's id may be cut to as much of its beginning as no other has.
        """
        score, text = parse_feedback(await read_body(request, config.server.max_body_mb))
        try:
            turn_id = await asyncio.to_thread(opener.journal.turns.find, turn_id)
            result = await asyncio.to_thread(opener.journal.verdicts.feedback, turn_id, score, text)
        except UnknownTurn as e:
            raise ApiError(404, str(e), code="feedback_refused") from e
        except AmbiguousId as e:
            raise ApiError(400, str(e), code="ambiguous_id") from e
        except TooLate as e:
            raise ApiError(409, str(e), code="feedback_refused") from e
        return {"turn": turn_id, "result": result}

    refuse_unlisted(route.path for route in app.routes if isinstance(route, Route))
    return app


class Guard:
    """Checks the token before anything is read, and counts answers by route and status."""

    def __init__(self, app: ASGIApp, tokens: Tokens, auth: bool, metrics: Metrics) -> None:
        self.app = app
        self.tokens = tokens
        self.auth = auth
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def counted(message: ASGIMessage) -> None:
            if message["type"] == "http.response.start":
                self.metrics.count(_route_label(scope), message["status"])
            await send(message)

        try:
            scope[BOUND] = check_access(Request(scope), self.tokens, self.auth)
        except ApiError as e:
            await _shaped(scope["path"], e)(scope, receive, counted)
            return
        try:
            await self.app(scope, receive, counted)
        except Exception:
            self.metrics.count(_route_label(scope), 500)  # what nobody foresaw is answered outside of this
            raise


async def _refuse(request: Request, error: Exception) -> Response:
    answer = as_api_error(error)
    if answer.status >= 500:
        log.error("%s %s: %s", request.method, request.url.path, error, exc_info=answer.status == 500)
    return _shaped(request.url.path, answer)


def _shaped(path: str, error: ApiError) -> Response:
    """A refusal in the shape of the format that was asked for."""
    return MessagesCodec().refusal(error) if "/v1/messages" in path else error.response()


async def _refuse_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    asked = f"{request.method} {request.url.path}"
    allowed = (error.headers or {}).get("Allow")
    path = request.url.path
    missing = {404: f"{asked} does not exist here{hint(path)}", 405: f"{asked} does not exist here; use {allowed}"}
    message = missing.get(error.status_code, str(error.detail))
    headers = None if error.headers is None else dict(error.headers)
    return _shaped(path_meant(path) or path, ApiError(error.status_code, message, headers=headers))


def _closed(fault: JournalUnavailable) -> dict[str, object]:
    """What anybody may know of a journal that takes nothing: no place of a file."""
    if isinstance(fault, JournalFull):
        return {"state": "full", "why": "the disk is full"}
    return {"state": "unavailable", "why": "no write succeeds: it is locked, read-only or damaged; see turnwise doctor"}


def _model(name: str, limit: int | None, owner: str) -> dict[str, Any]:
    """A model for the clients of both makers, whose fields do not collide. What is relayed belongs to `UPSTREAM`."""
    openai = {"object": "model", "created": 0, "owned_by": owner, "max_model_len": limit}
    anthropic = {"type": "model", "created_at": "1970-01-01T00:00:00Z", "max_input_tokens": limit}
    return {"id": name, "display_name": name} | openai | anthropic


# -- feedback ---------------------------------------------------------------------------------------------------------


def parse_feedback(body: bytes) -> tuple[int | None, str | None]:
    """Score and text of a feedback body. A text beside a score is a hint, and goes into prompts like a judge's own: it
    is cleaned like one. A text alone is a reaction like any other and stays as it was written. Raises ApiError (400).
    """
    raw = read_object(body)
    if set(raw) - {"score", "text"}:
        raise ApiError(400, "feedback is an object with 'score' (-1, 0 or 1) and/or 'text'", code="invalid_value")
    score, text = raw.get("score"), raw.get("text")
    if score is not None and (isinstance(score, bool) or score not in (-1, 0, 1)):
        raise ApiError(400, "score is -1, 0 or 1", param="score", code="invalid_value")
    if text is not None and (not isinstance(text, str) or not text.strip() or len(text) > 8000):
        raise ApiError(400, "text is a non-empty string of at most 8000 characters", param="text", code="invalid_value")
    if score is None and text is None:
        raise ApiError(400, "send a score, a text, or both", code="missing_parameter")
    if score is None:
        return None, text
    hint = clean(text).strip() if text is not None else None
    if hint == "":
        raise ApiError(400, "text is nothing but marks of a chat template", param="text", code="invalid_value")
    return int(score), hint


def _route_label(scope: Scope) -> str:
    """The route a request took, so that figures do not grow with what clients ask for."""
    route = scope.get("route")
    return getattr(route, "path", "other")
