"""OpenAI's chat completions as an upstream: messages go out in its shape, and events come back in pieces."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

from openai.types.chat.chat_completion_chunk import Choice

from turnwise.engines.upstream.conversation import ChatParams, ToolCallPiece, UpstreamEvent, UpstreamUsage
from turnwise.engines.upstream.faults import fault
from turnwise.errors import EngineError
from turnwise.messages import to_chat
from turnwise.types import FinishReason, Message

FINISH: dict[str, FinishReason] = {
    "stop": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "tool_calls": FinishReason.TOOL_CALLS,
    "function_call": FinishReason.TOOL_CALLS,
    "content_filter": FinishReason.CONTENT_FILTER,
}


class OpenAIWire:
    """One request and its answer."""

    path: ClassVar[str] = "/chat/completions"
    base_suffix: ClassVar[str] = "/chat/completions"
    longest_name: ClassVar[int] = 64

    def __init__(self) -> None:
        self._calls = _Calls()
        self._log_probs = False  # whether they were asked for

    def headers(self, key: str | None) -> dict[str, str]:
        return {"Authorization": f"Bearer {key}"} if key else {}

    def body(
        self, messages: list[Message], tools: list[dict[str, Any]] | None, params: ChatParams, model: str
    ) -> dict[str, Any]:
        self._log_probs = bool(params.as_given.get("logprobs"))
        settings = {
            params.max_tokens_key: params.max_tokens,
            **asdict(params.sampling),
            "stop": list(params.stop) or None,
            "tools": tools or None,
            "tool_choice": params.tool_choice if tools else None,
            "parallel_tool_calls": params.parallel_tool_calls if tools else None,
            "response_format": params.response_format,
            "reasoning_effort": params.reasoning_effort,
            "verbosity": params.verbosity,
            **params.as_given,
        }
        return {
            "model": model,
            "messages": [_told(message) for message in messages],
            "stream": True,
            "stream_options": {"include_usage": True},
        } | {key: value for key, value in settings.items() if value is not None}

    def read(self, event: dict[str, Any]) -> UpstreamEvent | None:
        if "error" in event:
            raise _fault(event["error"])
        usage = _usage(event.get("usage"))
        if not event.get("choices"):
            return UpstreamEvent(usage=usage) if usage else None
        choices: list[dict[str, Any]] = event["choices"]
        choice = next((choice for choice in choices if not choice.get("index")), {})
        delta = choice.get("delta") or {}
        reason = choice.get("finish_reason")
        return UpstreamEvent(
            text=(delta.get("content") or "") + (delta.get("refusal") or ""),
            reasoning=delta.get("reasoning_content") or delta.get("reasoning") or "",
            tool_calls=[self._calls.place(_piece(i, call)) for i, call in enumerate(delta.get("tool_calls") or [])],
            finish_reason=FINISH.get(reason, FinishReason.STOP) if reason else None,
            usage=usage,
            given=[_given(one) for one in choices if one.get("index") or (self._log_probs and one.get("logprobs"))],
        )


def _given(choice: dict[str, Any]) -> dict[str, Any]:
    """A piece of a choice that goes out as it came. Raises ValueError for one that no client could read."""
    reason = choice.get("finish_reason")
    if not choice.get("index"):
        choice = {"index": 0, "delta": {}, "logprobs": choice["logprobs"]}
    elif reason:
        choice = choice | {"finish_reason": FINISH.get(reason, FinishReason.STOP)}
    choice = {"delta": {}, "finish_reason": None} | choice
    Choice.model_validate(choice)
    return choice


def _told(message: Message) -> dict[str, Any]:
    """A message as it goes out, with its images where it has some."""
    told = to_chat(message)
    parts = told.pop("parts", None)
    return told | ({"content": parts} if parts else {})


@dataclass(slots=True)
class _CallUnderWay:
    """A call under way: its place among all of the answer's, and what has come of it."""

    place: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""

    def ended_by(self, piece: ToolCallPiece) -> bool:
        """Whether a piece with this call's index begins another one.

        Only one with a name does: by another id, unless it goes on where these arguments stop; or where these arguments
        are complete, unless it says the same name again and nothing else.
        """
        if not piece.name or (piece.id is not None and piece.id == self.id):
            return False
        complete, same = _is_json(self.arguments), piece.name == self.name
        if piece.id is not None and self.id is not None and (complete or not self.arguments or not same):
            return bool(piece.arguments) or not same or not complete
        return complete and (bool(piece.arguments) or not same)


class _Calls:
    """Tells calls apart: some servers give several the same index, or give none and send each in a chunk of its own."""

    def __init__(self) -> None:
        self._open: dict[int, _CallUnderWay] = {}
        self._by_id: dict[tuple[int, str], _CallUnderWay] = {}
        self._count = 0

    def place(self, piece: ToolCallPiece) -> ToolCallPiece:
        """The piece with its call's place as its index. An index that cannot be is left for `count_calls` to refuse."""
        index: Any = piece.index
        if type(index) is not int or not 0 <= index <= self._count:
            return piece
        known = self._by_id.get((index, piece.id)) if isinstance(piece.id, str) else None
        call = known or self._open.get(index)
        if call is None or call.ended_by(piece):
            call = self._open[index] = _CallUnderWay(self._count)
            self._count += 1
        call.id, call.name = call.id or piece.id, call.name or piece.name
        if isinstance(piece.id, str) and piece.id == call.id:
            self._by_id[index, piece.id] = call
        if isinstance(piece.arguments, str):
            call.arguments += piece.arguments
        return replace(piece, index=call.place)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _piece(place: int, call: dict[str, Any]) -> ToolCallPiece:
    function = call.get("function") or {}
    return ToolCallPiece(
        index=call.get("index", place),
        id=call.get("id") or None,
        name=function.get("name") or None,
        arguments=function.get("arguments") or "",
    )


def _usage(usage: dict[str, Any] | None) -> UpstreamUsage | None:
    if not usage:
        return None
    details = usage.get("prompt_tokens_details") or {}
    return UpstreamUsage(
        usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0, details.get("cached_tokens")
    )


def _fault(error: Any) -> EngineError:
    message = error.get("message") if isinstance(error, dict) else error
    code = error.get("code") if isinstance(error, dict) else None
    status = code if isinstance(code, int) and 400 <= code < 600 else 502
    return fault(f"the upstream failed in the middle of its answer: {message}", status, code)
