"""Answers an open turn with an upstream that takes messages: relayed as it comes, recorded whole, never trained on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any

from turnwise.engines.base import SamplingSettings
from turnwise.engines.upstream.client import ChatParams, UpstreamEngine, UpstreamEvent
from turnwise.gateway.turn.sampling import Closing, OpenTurn, with_call_ids
from turnwise.gateway.wire.honouring import verbosity_of, within
from turnwise.gateway.wire.request import Again, Delta, Final, ModelRequest, Usage, unsupported
from turnwise.journal import Journal
from turnwise.messages import answer_of, calls_of
from turnwise.tokens.answer_parser import AnswerParts, CallPiece
from turnwise.types import BASE_VERSION, FinishReason, Message, ToolCall

UNKNOWN_CONTEXT = 1 << 40
"""An upstream does not say how long its context is, so nothing is too long here; it refuses that itself."""


class Relaying(Closing):
    """The `delivery.Answers` of an upstream."""

    def __init__(self, journal: Journal, upstream: UpstreamEngine) -> None:
        super().__init__(journal)
        self.upstream = upstream

    async def stream(self, turn: OpenTurn) -> AsyncGenerator[Delta | Again | Final, None]:
        """The answer as the upstream gives it, then the Final, which is yielded only once the turn is durable."""
        request = turn.request
        turn.logprobs = None
        answer = _Relayed()
        as_came: list[dict[str, Any]] = []
        reason, usage = FinishReason.ERROR, Usage(0, 0)
        if request.logprobs and "logprobs" not in request.options.get("as_given", {}):
            await asyncio.shield(self._finish(turn, FinishReason.ERROR))
            name = "logprobs" if "logprobs" in request.record else "include"
            raise unsupported(name, "the upstream's log-probs are not known; ask for none")
        params = ChatParams(
            max_tokens=request.max_tokens,
            max_tokens_key=request.options.get("limit_word", "max_tokens"),
            sampling=_telling(request.sampling),
            stop=request.stops,
            tool_choice="none" if request.withheld else request.tool_choice,
            parallel_tool_calls=None if request.parallel_tool_calls else False,
            response_format=_format(request),
            reasoning_effort=_effort(request.record),
            verbosity=None if "verbosity" in request.ignored else verbosity_of(request.record),
            translated=_translated(request),
            as_given=request.options.get("as_given", {}),
        )
        async with self.closing(turn) as close:
            tools = request.tools or request.withheld
            begun = [answer_of(request.prefill)] if request.prefill else []
            events = self.upstream.chat([*request.messages, *begun], tools, params, model=request.model)
            async with aclosing(events):
                async for event in events:
                    parts = answer.take(event)
                    as_came += event.given
                    turn.text = answer.text
                    if event.usage is not None:
                        given = event.usage
                        usage = Usage(given.prompt_tokens, given.completion_tokens, cached_tokens=given.cached_tokens)
                        turn.used = (given.prompt_tokens, given.completion_tokens)
                    if event.finish_reason is not None:
                        reason = event.finish_reason
                        turn.stop_string = event.stop_string
                    if parts:
                        yield Delta(parts)
            message = with_call_ids(turn.id, answer.message)
            if reason in (FinishReason.STOP, FinishReason.TOOL_CALLS):  # some say the one where they mean the other
                reason = FinishReason.TOOL_CALLS if calls_of(message) else FinishReason.STOP
            await close(reason, message)
            yield Final(message, reason, usage, turn.stop_string, tuple(as_came))

    def token_text(self, token_id: int) -> str:
        raise AssertionError("an upstream gives no token ids")

    async def healthy(self) -> bool:
        return await self.upstream.healthy()

    async def max_model_len(self) -> int:
        return self.journal.store.config.engine.upstream_context or UNKNOWN_CONTEXT


class _Relayed:
    """An answer as far as the upstream has given it."""

    def __init__(self) -> None:
        self.text = ""
        self._thinking = ""
        self._calls: list[ToolCall] = []

    @property
    def message(self) -> Message:
        """What has come so far; its tool calls have no ids yet."""
        return answer_of(self.text, self._thinking, self._calls)

    def take(self, event: UpstreamEvent) -> AnswerParts:
        """Add an event to the answer; gives what it added."""
        parts = AnswerParts(reasoning=event.reasoning, content=event.text)
        parts.given = event.given
        self.text += event.text
        self._thinking += event.reasoning
        for piece in event.tool_calls:
            if piece.index == len(self._calls):
                self._calls.append(ToolCall("", ""))
            call = self._calls[piece.index]
            self._calls[piece.index] = ToolCall(call.name or piece.name or "", call.arguments + piece.arguments)
            parts.pieces.append(CallPiece(piece.index, piece.name, piece.arguments))
        return parts


class UpstreamVersions:
    """The `ServingVersions` of an upstream: there is only the base model, under any name."""

    number = BASE_VERSION
    error: str | None = None
    ready = True

    async def resolve(self, model: str) -> tuple[int, bool]:
        return BASE_VERSION, False

    @asynccontextmanager
    async def using(self, version: int) -> AsyncGenerator[None, None]:
        yield

    async def follow(self) -> None:
        await asyncio.Event().wait()


def _format(request: ModelRequest) -> dict[str, Any] | None:
    """The form asked for, in OpenAI's chat shape with all that the client said of it, whatever its wire format."""
    if request.structured is None:
        return None
    if "response_format" in request.record:
        return request.record["response_format"]
    given = (request.record.get("text") or {}).get("format") or {"type": "json_schema", "schema": request.structured}
    if given["type"] != "json_schema":
        return given
    return {"type": "json_schema", "json_schema": {"name": "answer"} | {k: v for k, v in given.items() if k != "type"}}


def _effort(record: dict[str, Any]) -> str | None:
    """How much to reason, in the words of any of the wire formats."""
    if record.get("reasoning_effort") is not None:
        return record["reasoning_effort"]
    return within(record, "reasoning", "effort") or within(record, "output_config", "effort")


def _telling(asked: SamplingSettings) -> SamplingSettings:
    """The settings without those that change nothing: an upstream may not know the word."""
    return replace(
        asked,
        top_k=asked.top_k if (asked.top_k or 0) > 0 else None,  # 0 and -1 are words for no limit
        min_p=asked.min_p or None,
        frequency_penalty=asked.frequency_penalty or None,
        presence_penalty=asked.presence_penalty or None,
        repetition_penalty=None if asked.repetition_penalty == 1 else asked.repetition_penalty,
    )


def _translated(request: ModelRequest) -> frozenset[str]:
    """Which of OpenAI's words for the limit and the effort the client did not itself choose."""
    own = {"max_tokens": "limit_word" in request.options, "reasoning_effort": "reasoning_effort" in request.record}
    return frozenset(word for word, chosen in own.items() if not chosen)
