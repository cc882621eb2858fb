"""OpenAI's chat completions on the wire: answers in its two shapes, whole and as chunks."""

from __future__ import annotations

import time
from typing import Any

from openai.types.chat import ChatCompletion
from starlette.responses import Response

from turnwise.gateway.errors import ApiError
from turnwise.gateway.wire.chat.choices import joined
from turnwise.gateway.wire.chat.request import parse_request
from turnwise.gateway.wire.request import (
    AnswerHead,
    Final,
    ModelRequest,
    Usage,
    as_json,
    call_id,
    event,
)
from turnwise.messages import calls_of, chat_call, text_of, thinking_in
from turnwise.tokens.answer_pieces import AnswerParts, CallPiece


class ChatCodec:
    """`POST /v1/chat/completions`."""

    name = "chat"

    def __init__(self, *, choices: bool = False) -> None:
        self._choices = choices

    def parse(self, body: bytes) -> ModelRequest:
        return parse_request(body, choices=self._choices)

    def whole(self, head: AnswerHead, final: Final, logprobs: list[tuple[str, float]] | None) -> dict[str, Any]:
        answer: dict[str, Any] = {"role": "assistant", "content": text_of(final.message), "refusal": None}
        if thought := thinking_in(final.message):
            answer["reasoning_content"] = thought
        if calls := calls_of(final.message):
            answer["content"] = answer["content"] or None
            answer["tool_calls"] = [chat_call(call) for call in calls]
        choice = {
            "index": 0,
            "message": answer,
            "finish_reason": final.finish_reason,
            "logprobs": None if logprobs is None else logprobs_body(logprobs),
        }
        first, others = joined(final.given)
        choices = [choice | first, *others]
        body = _head(head, "chat.completion") | {"choices": choices, "usage": usage_body(final.usage)}
        ChatCompletion.model_validate(body)
        return body

    def writer(self, head: AnswerHead) -> ChunkWriter:
        return ChunkWriter(head)

    def refusal(self, error: ApiError) -> Response:
        return error.response()


class ChunkWriter:
    """Server-sent events of one streamed answer."""

    def __init__(self, head: AnswerHead) -> None:
        self._head = _head(head, "chat.completion.chunk")
        self._turn_id = head.turn_id
        self._include_usage = bool(head.request.options.get("include_usage"))
        # Most events add a few characters of content to the same frame, so that frame is written once.
        frame = self._chunk({"content": ""})
        self._before, self._after = frame.split(b'"content":""')

    def begin(self) -> bytes:
        return self._chunk({"role": "assistant", "content": ""})

    def delta(self, parts: AnswerParts, logprobs: list[tuple[str, float]] | None) -> bytes:
        values = None if logprobs is None else logprobs_body(logprobs)
        out = b""
        for given in parts.given:
            if given["index"]:
                out += self._framed(given)
            else:
                values = given["logprobs"]
        for piece in parts.pieces:
            if isinstance(piece, CallPiece):
                if piece.name is not None or piece.arguments:
                    out += self._chunk({"tool_calls": [self._call(piece)]}, logprobs=values)
                    values = None
            elif piece.kind == "reasoning":
                out += self._chunk({"reasoning_content": piece.text})
            elif values is None:
                out += self._before + b'"content":' + as_json(piece.text) + self._after
            else:
                out += self._chunk({"content": piece.text}, logprobs=values)
                values = None
        if values is not None and any(values.values()):  # tokens without text yet, or of reasoning
            out += self._chunk({"content": ""}, logprobs=values)
        return out

    def end(self, final: Final) -> bytes:
        out = self._chunk({}, finish_reason=final.finish_reason)
        if self._include_usage:
            out += event(self._head | {"choices": [], "usage": usage_body(final.usage)})
        return out + b"data: [DONE]\n\n"

    def error(self, error: ApiError) -> bytes:
        return event(error.body())

    def _call(self, piece: CallPiece) -> dict[str, Any]:
        if piece.name is None:
            return {"index": piece.index, "function": {"arguments": piece.arguments}}
        return {
            "index": piece.index,
            "id": call_id(self._turn_id, piece.index),
            "type": "function",
            "function": {"name": piece.name, "arguments": piece.arguments},
        }

    def _chunk(
        self, delta: dict[str, Any], finish_reason: str | None = None, logprobs: dict[str, Any] | None = None
    ) -> bytes:
        choice: dict[str, Any] = {"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": logprobs}
        return self._framed(choice)

    def _framed(self, choice: dict[str, Any]) -> bytes:
        body = self._head | {"choices": [choice]}
        if self._include_usage:
            body["usage"] = None
        return event(body)


def _head(head: AnswerHead, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{head.turn_id}",
        "object": kind,
        "created": int(time.time()),
        "model": head.request.model,
    }


def usage_body(usage: Usage) -> dict[str, Any]:
    body: dict[str, Any] = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
    if usage.cached_tokens is not None:
        body["prompt_tokens_details"] = {"cached_tokens": usage.cached_tokens}
    if usage.reasoning_tokens:
        body["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    return body


def logprobs_body(tokens: list[tuple[str, float]]) -> dict[str, Any]:
    """OpenAI's `logprobs` object from pairs of token text and natural log-prob.

    A token that is only a part of a character has no text of its own, so its bytes are left open (null).
    """
    content = [
        {
            "token": text,
            "logprob": logprob,
            "bytes": None if "\ufffd" in text else list(text.encode()),
            "top_logprobs": [],
        }
        for text, logprob in tokens
    ]
    return {"content": content, "refusal": None}
