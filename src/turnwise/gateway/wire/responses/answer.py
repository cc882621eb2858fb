"""OpenAI's responses on the wire: input items become typed messages, answers become output items and their events.

`previous_response_id` names a recorded turn; its history comes before the input. Reasoning is a `reasoning` item, each
tool call a `function_call` item. Every field is honoured, kept in the record, or refused by name.
"""

from __future__ import annotations

import time
from typing import Any

from openai.types.responses import Response as OpenAIResponse
from starlette.responses import Response

from turnwise.gateway.errors import ApiError
from turnwise.gateway.wire.call_order import OneAtATime, is_complete
from turnwise.gateway.wire.request import AnswerHead, Final, ModelRequest, Usage, call_id, event
from turnwise.gateway.wire.responses.request import parse_request
from turnwise.messages import calls_of, text_of, thinking_in
from turnwise.tokens.answer_pieces import AnswerParts, CallPiece, Piece, TextPiece
from turnwise.tokens.text_tokens import split_behind, tokens_of_message, tokens_of_part, without_reasoning
from turnwise.types import FinishReason

CUT_SHORT = {FinishReason.LENGTH: "max_output_tokens", FinishReason.CONTENT_FILTER: "content_filter"}
"""The reasons of an answer that is incomplete."""


class ResponsesCodec:
    """`POST /v1/responses`."""

    name = "responses"

    def parse(self, body: bytes) -> ModelRequest:
        return parse_request(body)

    def whole(self, head: AnswerHead, final: Final, logprobs: list[tuple[str, float]] | None) -> dict[str, Any]:
        items = _Items(head)
        output: list[dict[str, Any]] = []
        tokens = tokens_of_message(final.message, logprobs or [])
        if thought := thinking_in(final.message):
            output.append(items.reasoning(thought, "completed"))
        if text := text_of(final.message):
            output.append(items.message(text, "completed", tokens, len(output)))
        for i, call in enumerate(calls_of(final.message)):
            output.append(items.call(i, call.name, call.arguments, "completed"))
        if not output:  # a client that sends the conversation back must have something to send
            output.append(items.message("", "completed", tokens))
        if not is_complete(output[-1].get("arguments", "")):
            output[-1]["status"] = _status(final)
        body = _response(head, output, _status(final), _now()) | {
            "usage": usage_body(final.usage),
            "completed_at": _now(),
            "incomplete_details": _incomplete(final),
        }
        OpenAIResponse.model_validate(body)
        return body

    def writer(self, head: AnswerHead) -> ItemWriter:
        return ItemWriter(head)

    def refusal(self, error: ApiError) -> Response:
        return error.response()


class ItemWriter:
    """The event stream of one answer: items are added, filled and done in the order in which their parts come."""

    def __init__(self, head: AnswerHead) -> None:
        self._head = head
        self._items = _Items(head)
        self._order = OneAtATime()
        self._mixed = False  # the step at hand has more than text
        self._created = _now()
        self._sequence = -1
        self._output: list[dict[str, Any]] = []
        self._open: str | None = None  # "reasoning", "message" or "call <index>"
        self._text = ""
        self._call = (0, "")
        self._logprobs: list[tuple[str, float]] = []
        self._waiting: list[tuple[str, float]] = []  # log-probs of tokens whose text has not come yet

    def begin(self) -> bytes:
        body = _response(self._head, [], "in_progress", self._created)
        return self._event("response.created", response=body) + self._event("response.in_progress", response=body)

    def delta(self, parts: AnswerParts, logprobs: list[tuple[str, float]] | None) -> bytes:
        self._waiting += logprobs or []
        if logprobs is None:  # not asked for, or not all known: then the finished item has none
            self._waiting, self._logprobs = [], []
        pieces = self._order.feed(parts.pieces)
        self._mixed = any(not isinstance(piece, TextPiece) or piece.kind == "reasoning" for piece in pieces)
        out = b"".join(map(self._write, pieces))
        if self._open not in (None, "message"):
            self._waiting = []  # tokens of reasoning, of a call, or of a tag
        return out

    def _write(self, piece: Piece) -> bytes:
        if isinstance(piece, CallPiece):
            return self._write_call(piece)
        if piece.kind == "reasoning":
            out = self._begin("reasoning")
            self._text += piece.text
            return out + self._add("response.reasoning_text.delta", delta=piece.text, content_index=0)
        out = self._begin("message")
        self._text += piece.text
        if self._mixed:
            tokens, self._waiting = tokens_of_part(piece.text, self._waiting), []
        else:
            tokens, self._waiting = split_behind(piece.text, without_reasoning(piece.text, self._waiting))
        values = _logprobs(tokens)
        self._logprobs += tokens
        return out + self._add("response.output_text.delta", delta=piece.text, content_index=0, logprobs=values)

    def _write_call(self, piece: CallPiece) -> bytes:
        out = b""
        if piece.name is not None:
            out += self._done()
            self._call = (piece.index, piece.name)
            out += self._begin(f"call {piece.index}")
        if piece.arguments:
            self._text += piece.arguments
            out += self._add("response.function_call_arguments.delta", delta=piece.arguments)
        return out

    def end(self, final: Final) -> bytes:
        out = b"".join(map(self._write, self._order.finish()))
        if self._open is None and not self._output:
            out += self._begin("message")
        if self._open == "message":
            self._logprobs += self._waiting  # the last token has no text
        status = _status(final)
        out += self._done(status if self._cut() else "completed")
        body = _response(self._head, self._output, status, self._created)
        body |= {"usage": usage_body(final.usage), "completed_at": _now(), "incomplete_details": _incomplete(final)}
        return out + self._event(f"response.{status}", response=body)

    def _cut(self) -> bool:
        """Whether the open item ends where the answer does: a call that is whole does not."""
        return not (self._open or "").startswith("call") or not is_complete(self._text)

    def error(self, error: ApiError) -> bytes:
        code = "rate_limit_exceeded" if error.status == 429 else "server_error"
        body = _response(self._head, self._output, "failed", self._created)
        return self._event("response.failed", response=body | {"error": {"code": code, "message": error.message}})

    # -- items --------------------------------------------------------------------------------------------------------

    def _begin(self, kind: str) -> bytes:
        if self._open == kind:
            return b""
        out = self._done()
        self._open, self._text, self._logprobs = kind, "", []
        item = self._item("in_progress")
        if kind in ("message", "reasoning"):
            item["content"] = []
        out += self._event("response.output_item.added", item=item, output_index=len(self._output))
        if kind in ("message", "reasoning"):
            out += self._add("response.content_part.added", part=self._part(), content_index=0)
        return out

    def _done(self, status: str = "completed") -> bytes:
        if self._open is None:
            return b""
        item = self._item(status)
        if self._open == "reasoning":
            out = self._add("response.reasoning_text.done", text=self._text, content_index=0)
            out += self._add("response.content_part.done", part=self._part(), content_index=0)
        elif self._open == "message":
            values = _logprobs(self._logprobs)
            out = self._add("response.output_text.done", text=self._text, content_index=0, logprobs=values)
            out += self._add("response.content_part.done", part=self._part(), content_index=0)
        else:
            out = self._add("response.function_call_arguments.done", arguments=self._text, name=item["name"])
        out += self._event("response.output_item.done", item=item, output_index=len(self._output))
        self._output.append(item)
        self._open = None
        return out

    def _item(self, status: str) -> dict[str, Any]:
        if self._open == "reasoning":
            return self._items.reasoning(self._text, status, len(self._output))
        if self._open == "message":
            return self._items.message(self._text, status, self._logprobs, len(self._output))
        return self._items.call(self._call[0], self._call[1], self._text, status)

    def _part(self) -> dict[str, Any]:
        if self._open == "reasoning":
            return {"type": "reasoning_text", "text": self._text}
        return _text_part(self._text, self._logprobs)

    def _add(self, kind: str, **fields: Any) -> bytes:
        item_id = self._item("in_progress")["id"]
        return self._event(kind, item_id=item_id, output_index=len(self._output), **fields)

    def _event(self, kind: str, **fields: Any) -> bytes:
        self._sequence += 1
        return event({"type": kind, "sequence_number": self._sequence} | fields, kind)


class _Items:
    """Output items with ids made from the turn's."""

    def __init__(self, head: AnswerHead) -> None:
        self._turn_id = head.turn_id
        self._id = head.turn_id.removeprefix("turn-")
        self._groups: dict[str, tuple[str, str]] = head.request.options.get("groups", {})

    def reasoning(self, text: str, status: str, position: int = 0) -> dict[str, Any]:
        content = [{"type": "reasoning_text", "text": text}]
        id = f"rs_{self._id}_{position}" if position else f"rs_{self._id}"
        return {"type": "reasoning", "id": id, "summary": [], "content": content, "status": status}

    def message(self, text: str, status: str, logprobs: list[tuple[str, float]], position: int = 0) -> dict[str, Any]:
        return {
            "type": "message",
            "id": f"msg_{self._id}_{position}" if position else f"msg_{self._id}",
            "role": "assistant",
            "status": status,
            "content": [_text_part(text, logprobs)],
        }

    def call(self, index: int, name: str, arguments: str, status: str) -> dict[str, Any]:
        item = {
            "type": "function_call",
            "id": f"fc_{self._id}_{index}",
            "call_id": call_id(self._turn_id, index),
            "name": name,
            "arguments": arguments,
            "status": status,
        }
        if name in self._groups:
            namespace, plain = self._groups[name]
            item |= {"namespace": namespace, "name": plain}
        return item


def usage_body(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens or 0, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


def response_id(turn_id: str) -> str:
    return f"resp_{turn_id.removeprefix('turn-')}"


def _response(head: AnswerHead, output: list[dict[str, Any]], status: str, created: int) -> dict[str, Any]:
    request = head.request
    given = request.record
    return {
        "id": response_id(head.turn_id),
        "object": "response",
        "created_at": created,
        "status": status,
        "model": request.model,
        "output": output,
        "error": None,
        "incomplete_details": None,
        "instructions": given.get("instructions"),
        "max_output_tokens": request.max_tokens,
        "metadata": given.get("metadata") or {},
        "parallel_tool_calls": request.parallel_tool_calls,
        "previous_response_id": None if request.previous is None else response_id(request.previous),
        "reasoning": request.options.get("reasoning"),
        "store": given.get("store") is not False,
        "temperature": 1.0 if request.sampling.temperature is None else request.sampling.temperature,
        "text": given.get("text") or {"format": {"type": "text"}},
        "tool_choice": given.get("tool_choice") or "auto",
        "tools": request.options.get("tools", []),
        "top_p": 1.0 if request.sampling.top_p is None else request.sampling.top_p,
        "truncation": "disabled",
        "usage": None,
    }


def _status(final: Final) -> str:
    return "incomplete" if final.finish_reason in CUT_SHORT else "completed"


def _incomplete(final: Final) -> dict[str, str] | None:
    reason = CUT_SHORT.get(final.finish_reason)
    return {"reason": reason} if reason else None


def _text_part(text: str, logprobs: list[tuple[str, float]]) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": _logprobs(logprobs)}


def _logprobs(tokens: list[tuple[str, float]]) -> list[dict[str, Any]]:
    return [
        {
            "token": text,
            "logprob": value,
            "bytes": [] if "\ufffd" in text else list(text.encode()),
            "top_logprobs": [],
        }
        for text, value in tokens
    ]


def _now() -> int:
    return int(time.time())
