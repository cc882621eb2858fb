"""Delivers an answer in its wire format, whole or as a stream of events, within its time limit."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import ExitStack, aclosing
from typing import Protocol, TypeVar

from fastapi import Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from turnwise.config import Config
from turnwise.gateway.errors import ApiError, as_api_error
from turnwise.gateway.metrics import Metrics
from turnwise.gateway.turn.leaving import Leaving
from turnwise.gateway.turn.opening import TurnOpener
from turnwise.gateway.turn.sampling import OpenTurn
from turnwise.gateway.turn.unrecorded import HEADER as UNRECORDED
from turnwise.gateway.wire.http_request import read_body, read_caller
from turnwise.gateway.wire.request import Again, AnswerHead, Codec, Delta, Final, ModelRequest
from turnwise.messages import calls_of, text_of, thinking_in
from turnwise.tokens.answer_pieces import AnswerParts, CallPiece

log = logging.getLogger(__name__)

T = TypeVar("T")
Events = AsyncGenerator[Delta | Again | Final, None]
Written = AsyncGenerator[tuple[bytes, bool], None]
"""Bytes of an answer, and whether more of it follows."""


class Answers(Protocol):
    """What answers an open turn: `answering` with engines that take token ids, `relaying` with those that do not."""

    def stream(self, turn: OpenTurn) -> Events: ...

    async def drain(self) -> None: ...

    def token_text(self, token_id: int) -> str: ...

    async def healthy(self) -> bool: ...

    async def max_model_len(self) -> int:
        """Longest prompt plus answer, in tokens."""
        ...


def answers_in(
    codec: Codec, config: Config, opener: TurnOpener, answers: Answers, metrics: Metrics
) -> Callable[..., Awaitable[Response]]:
    """The handler of one wire format."""

    async def answer(request: Request, session: str | None = None) -> Response:
        started = time.monotonic()
        parsed = codec.parse(await read_body(request, config.server.max_body_mb))
        caller = read_caller(request, session, config.streams)
        with metrics.open_turn.time():
            turn = await opener.open_turn(parsed, caller, codec.name)
        with ExitStack() as held:
            held.callback(opener.let_go, turn.id)
            return await respond(request, parsed, turn, started, held)

    async def respond(
        request: Request, parsed: ModelRequest, turn: OpenTurn, started: float, held: ExitStack
    ) -> Response:
        headers = {
            "x-turnwise-turn-id": turn.id,
            "x-turnwise-session-id": turn.session_id,
            "x-turnwise-version": str(turn.version),
            "x-turnwise-lineage": turn.lineage,
            "x-request-id": turn.id,
        }
        if turn.request.ignored:
            headers["x-turnwise-ignored"] = ", ".join(turn.request.ignored)
        if not turn.recorded:
            headers[UNRECORDED] = "no"
        head = AnswerHead(turn.id, turn.request, len(turn.prompt.ids))
        answer_events = answers.stream(turn) if turn.replay is None else _replayed(turn.replay)
        events = _timed(answer_events, config.server.request_timeout_s, metrics, started)
        if parsed.stream:
            # The first event is awaited before the status line goes out, so that a full queue is a 429, not a 200.
            first = await _until_gone(request, anext(events), opener.leaving)
            return _Stream(
                _written(codec, turn, head, answers, metrics, first, events, opener.leaving),
                events,
                headers=headers | {"Cache-Control": "no-cache"},
                held=held.pop_all(),
            )
        final, tokens = await _until_gone(request, _collect(events), opener.leaving)
        if not turn.recorded:
            headers[UNRECORDED] = "no"
        return JSONResponse(codec.whole(head, final, _texts(turn, answers, tokens)), headers=headers)

    answer.__doc__ = type(codec).__doc__
    return answer


class _Stream(StreamingResponse):
    """Server-sent events that are closed however the response ends.

    A client that goes away leaves the generators where they stand; the turn is not left open until they are collected.
    It is in hand (`held`) until then.
    """

    def __init__(self, written: Written, events: Events, headers: dict[str, str], held: ExitStack) -> None:
        super().__init__((), media_type="text/event-stream", headers=headers)
        self._written, self._events, self._held = written, events, held

    async def stream_response(self, send: Send) -> None:
        """As Starlette's, but the end of the body leaves with the last bytes: every write costs."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for data, more in self._written:
            await send({"type": "http.response.body", "body": data, "more_body": more})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._held:
            try:
                await super().__call__(scope, receive, send)
            finally:
                await self._written.aclose()
                await self._events.aclose()  # a writer that was never begun does not close them


async def _replayed(final: Final) -> Events:
    """A recorded answer, given once more: all of it in one step."""
    message = final.message
    calls = [CallPiece(i, call.name, call.arguments) for i, call in enumerate(calls_of(message))]
    yield Delta(AnswerParts(reasoning=thinking_in(message), content=text_of(message), calls=calls))
    yield final


async def _timed(events: Events, limit_s: float, metrics: Metrics, started: float) -> Events:
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
                    late = ApiError(504, f"the answer took longer than {limit_s:g} s (server.request_timeout_s)")
                    await events.athrow(late)  # it failed; closing would say that the client went away


async def _collect(events: Events) -> tuple[Final, list[tuple[int, float]]]:
    tokens: list[tuple[int, float]] = []
    async with aclosing(events):
        async for event in events:
            if isinstance(event, Final):
                return event, tokens
            if isinstance(event, Again):
                tokens.clear()
            else:
                tokens += event.tokens
    raise ApiError(502, "the engine gave no answer", code="engine_error")


async def _until_gone(request: Request, work: Awaitable[T], leaving: Leaving) -> T:
    """The result of `work`, which is cancelled as soon as the client hangs up, or the gateway ends."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_hang_up(request))
    try:
        with leaving.breakable():
            await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
        return await task
    except asyncio.CancelledError:
        hung_up = ApiError(499, "the client closed the connection before the answer was complete")
        raise leaving.excuse() or hung_up from None
    finally:
        gone.cancel()
        task.cancel()


async def _hang_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _written(
    codec: Codec,
    turn: OpenTurn,
    head: AnswerHead,
    answers: Answers,
    metrics: Metrics,
    first: Delta | Again | Final,
    events: Events,
    leaving: Leaving,
) -> Written:
    writer = codec.writer(head)
    data = writer.begin()  # leaves with what comes first
    event: Delta | Again | Final | None = first
    async with aclosing(events):
        try:
            while event is not None:
                if isinstance(event, Final):
                    yield data + writer.end(event), False
                    return
                if isinstance(event, Delta):
                    data += writer.delta(event.parts, _texts(turn, answers, event.tokens))
                if data:
                    yield data, True
                    data = b""
                with leaving.breakable():
                    event = await anext(events, None)
        except asyncio.CancelledError:
            if (excuse := leaving.excuse()) is None:
                raise
            yield data + writer.error(excuse), False
        except Exception as e:
            error = as_api_error(e)
            metrics.failed += error.status >= 500
            if error.status == 500:
                log.exception("turn %s failed in the middle of its answer", head.turn_id)
            yield data + writer.error(error), False
        else:
            yield data, False


def _texts(turn: OpenTurn, answers: Answers, tokens: list[tuple[int, float]]) -> list[tuple[str, float]] | None:
    """Text and log-prob of each token. None where nobody asked, for an answer from the record, and from the first token
    on that has no log-prob: those of some tokens would be read as if they were all.
    """
    if not turn.request.logprobs or turn.logprobs is None or turn.replay is not None:
        return None
    return [(answers.token_text(token_id), logprob) for token_id, logprob in tokens]
