"""Anthropic's messages on the wire: requests with blocks become typed messages, answers become blocks and their events.

Reasoning is a `thinking` block, a tool call a `tool_use` block. A tool's arguments leave in pieces for as long as they
are valid JSON: this format has no place for anything else.
"""

from __future__ import annotations

import json
from typing import Any

import ijson
import jiter
from anthropic.types import Message as AnthropicMessage
from fastapi.responses import JSONResponse
from starlette.responses import Response

from turnwise.gateway.errors import ApiError
from turnwise.gateway.wire.call_order import OneAtATime
from turnwise.gateway.wire.messages.request import parse_request
from turnwise.gateway.wire.request import (
    AnswerHead,
    Final,
    ModelRequest,
    Usage,
    call_id,
    event,
)
from turnwise.messages import calls_of, text_of, thinking_in
from turnwise.tokens.answer_pieces import AnswerParts, CallPiece, Piece
from turnwise.types import FinishReason

STOP_REASONS = {
    FinishReason.STOP: "end_turn",
    FinishReason.LENGTH: "max_tokens",
    FinishReason.TOOL_CALLS: "tool_use",
    FinishReason.CONTENT_FILTER: "refusal",
}
ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
DEEP = 100
"""Nesting from which on the clients' own limit is asked."""


class MessagesCodec:
    """`POST /v1/messages`."""

    name = "messages"

    def parse(self, body: bytes) -> ModelRequest:
        request = self.parse_count(body)
        if request.max_tokens is None:
            raise ApiError(400, "the field 'max_tokens' is required", param="max_tokens", code="missing_parameter")
        return request

    def parse_count(self, body: bytes) -> ModelRequest:
        """A body of `count_tokens`, which needs no `max_tokens`."""
        return parse_request(body)

    def whole(self, head: AnswerHead, final: Final, logprobs: list[tuple[str, float]] | None) -> dict[str, Any]:
        content: list[dict[str, Any]] = []
        if thought := thinking_in(final.message):
            content.append({"type": "thinking", "thinking": thought, "signature": head.turn_id})
        if text := text_of(final.message):
            content.append({"type": "text", "text": text})
        for call in calls_of(final.message):
            content.append({"type": "tool_use", "id": call.id, "name": call.name, "input": _input(call.arguments)})
        body = _message_body(head, content, usage_body(final.usage)) | _stop(final)
        AnthropicMessage.model_validate(body)
        return body

    def writer(self, head: AnswerHead) -> BlockWriter:
        return BlockWriter(head)

    def refusal(self, error: ApiError) -> Response:
        return JSONResponse(error_body(error), error.status, headers=error.headers)


class BlockWriter:
    """The event stream of one answer: blocks are opened and closed as their parts come."""

    def __init__(self, head: AnswerHead) -> None:
        self._head = head
        self._index = -1
        self._open: str | None = None
        self._order = OneAtATime()
        self._arguments = JsonPieces()

    def begin(self) -> bytes:
        usage = {"input_tokens": self._head.prompt_tokens, "output_tokens": 0}
        body = _message_body(self._head, [], usage) | {"stop_reason": None, "stop_sequence": None}
        return _event("message_start", message=body)

    def delta(self, parts: AnswerParts, logprobs: list[tuple[str, float]] | None) -> bytes:
        return b"".join(map(self._write, self._order.feed(parts.pieces)))

    def _write(self, piece: Piece) -> bytes:
        if isinstance(piece, CallPiece):
            return self._write_call(piece)
        if piece.kind == "reasoning":
            out = self._start("thinking", {"type": "thinking", "thinking": "", "signature": ""})
            return out + self._add({"type": "thinking_delta", "thinking": piece.text})
        return self._start("text", {"type": "text", "text": ""}) + self._add({"type": "text_delta", "text": piece.text})

    def _write_call(self, piece: CallPiece) -> bytes:
        out = b""
        if piece.name is not None:
            id = call_id(self._head.turn_id, piece.index)
            block = {"type": "tool_use", "id": id, "name": piece.name, "input": {}}
            out = self._start(f"tool_use {piece.index}", block)
            self._arguments = JsonPieces()
        if piece.arguments and self._arguments.take(piece.arguments):
            out += self._add({"type": "input_json_delta", "partial_json": piece.arguments})
        return out

    def end(self, final: Final) -> bytes:
        out = b"".join(map(self._write, self._order.finish())) + self._close()
        out += _event("message_delta", delta=_stop(final), usage=usage_body(final.usage))
        return out + _event("message_stop")

    def error(self, error: ApiError) -> bytes:
        return event(error_body(error), "error")

    def _start(self, kind: str, block: dict[str, Any]) -> bytes:
        if self._open == kind:
            return b""
        out = self._close()
        self._open = kind
        self._index += 1
        return out + _event("content_block_start", index=self._index, content_block=block)

    def _add(self, delta: dict[str, Any]) -> bytes:
        return _event("content_block_delta", index=self._index, delta=delta)

    def _close(self) -> bytes:
        if self._open is None:
            return b""
        out = b""
        if self._open == "thinking":
            out = self._add({"type": "signature_delta", "signature": self._head.turn_id})
        self._open = None
        return out + _event("content_block_stop", index=self._index)


class JsonPieces:
    """Whether the pieces so far are the beginning of JSON that this format's clients can read.

    The SDKs parse what has come after every piece, and fail on what can no longer be JSON.
    """

    def __init__(self) -> None:
        self._events: Any = ijson.sendable_list()
        self._parser: Any = ijson.basic_parse_coro(self._events)
        self._text = ""
        self._depth = 0
        self._valid = True

    def take(self, piece: str) -> bool:
        """Take a piece; gives whether it may be sent."""
        if not self._valid:
            return False
        self._text += piece
        try:
            self._parser.send(piece.encode())
        except StopIteration:
            pass
        except (ijson.JSONError, ValueError, SystemError):  # a number of thousands of digits is a SystemError
            self._valid = False
            return False
        self._depth += sum(
            (kind in ("start_map", "start_array")) - (kind in ("end_map", "end_array")) for kind, _ in self._events
        )
        self._events.clear()
        if self._depth > DEEP or "\\u" in self._text:  # what ijson takes and the clients do not
            self._valid = _is_partial_json(self._text)
        return self._valid


def _is_partial_json(text: str) -> bool:
    try:
        jiter.from_json(text.encode(), partial_mode=True)
    except ValueError:
        return False
    return True


def error_body(error: ApiError) -> dict[str, Any]:
    """An error in Anthropic's shape."""
    kind = ERROR_TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
    message = error.message
    if error.code == "context_length_exceeded":
        message = f"prompt is too long: {message}"  # clients of this format look for these words
    details = {} if error.details is None else {"details": error.details}
    return {"type": "error", "error": {"type": kind, "message": message} | details, "request_id": None}


def usage_body(usage: Usage) -> dict[str, Any]:
    """Token counts; in this format `input_tokens` are those that did not come from a cache."""
    if usage.cached_tokens is None:
        return {"input_tokens": usage.prompt_tokens, "output_tokens": usage.completion_tokens}
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
    }


def _event(kind: str, **fields: Any) -> bytes:
    return event({"type": kind} | fields, kind)


def _message_body(head: AnswerHead, content: list[dict[str, Any]], usage: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": f"msg_{head.turn_id.removeprefix('turn-')}",
        "type": "message",
        "role": "assistant",
        "model": head.request.model,
        "content": content,
        "usage": usage,
    }


def _stop(final: Final) -> dict[str, Any]:
    if final.stop_string is not None and final.finish_reason is FinishReason.STOP:
        return {"stop_reason": "stop_sequence", "stop_sequence": final.stop_string}
    return {"stop_reason": STOP_REASONS.get(final.finish_reason, "end_turn"), "stop_sequence": None}


def _input(arguments: str) -> dict[str, Any]:
    """A tool's arguments as the object this format asks for; a text that is no JSON is passed on under its own key."""
    try:
        value = jiter.from_json(arguments.encode(), partial_mode=True, allow_inf_nan=False)
        json.dumps(value, allow_nan=False)  # 1e999 is no number that could be written again
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"INVALID_JSON": arguments}
