"""Anthropic's messages as an upstream: typed messages become its blocks, and its events our pieces.

Reasoning of earlier turns is left out: a thinking block is only taken back with the signature it was made with.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any, ClassVar

from turnwise.capabilities import ANTHROPIC_LACKS
from turnwise.engines.upstream.conversation import ChatParams, ToolCallPiece, UpstreamEvent, UpstreamUsage
from turnwise.engines.upstream.faults import fault
from turnwise.errors import EngineError
from turnwise.messages import text_of
from turnwise.types import FinishReason, Image, Message, Part, Text, ToolCall, ToolResult

API_VERSION = "2023-06-01"
DEFAULT_MAX_TOKENS = 4096
"""The API must be told a limit; this one stands in where the client names none."""
FINISH: dict[str, FinishReason] = {
    "max_tokens": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.LENGTH,
    "tool_use": FinishReason.TOOL_CALLS,
    "refusal": FinishReason.CONTENT_FILTER,
}
UNKNOWN_HERE = (*ANTHROPIC_LACKS, "response_format")
EFFORTS = ("low", "medium", "high", "xhigh", "max")
STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "timeout_error": 504,
    "overloaded_error": 529,
}
Block = dict[str, Any]


class AnthropicWire:
    """One request and its answer."""

    path: ClassVar[str] = "/v1/messages"
    base_suffix: ClassVar[str] = "/v1"
    longest_name: ClassVar[int] = 128

    def __init__(self) -> None:
        self._calls: dict[int, int] = {}  # content block -> its place among the tool calls
        self._without_arguments: set[int] = set()
        self._prompt_tokens = 0
        self._cached_tokens: int | None = None

    def headers(self, key: str | None) -> dict[str, str]:
        return {"anthropic-version": API_VERSION} | ({"x-api-key": key} if key else {})

    def body(
        self, messages: list[Message], tools: list[dict[str, Any]] | None, params: ChatParams, model: str
    ) -> dict[str, Any]:
        asked = asdict(params.sampling) | {"verbosity": params.verbosity, "response_format": params.response_format}
        for name in UNKNOWN_HERE:
            if asked[name] is not None:
                raise EngineError(f'{name}: an upstream with engine.api = "anthropic" has no such setting', 400)
        system = "\n\n".join(text_of(message) for message in messages if message.role == "system")
        settings = {
            "system": system or None,
            "temperature": params.sampling.temperature,
            "top_p": params.sampling.top_p,
            "top_k": params.sampling.top_k,
            "stop_sequences": list(params.stop) or None,
            "tools": [_tool(tool) for tool in tools] if tools else None,
            "tool_choice": _choice(params) if tools else None,
            "output_config": _output_config(params),
        }
        return {
            "model": model,
            "max_tokens": params.max_tokens or DEFAULT_MAX_TOKENS,
            "messages": _turns(messages),
            "stream": True,
        } | {key: value for key, value in settings.items() if value is not None}

    def read(self, event: dict[str, Any]) -> UpstreamEvent | None:
        kind = event.get("type")
        if kind == "error":
            error = event["error"]
            message = f"the upstream failed in the middle of its answer: {error.get('message')}"
            raise fault(message, STATUS.get(error.get("type"), 502))
        if kind == "message_start":
            self._count_prompt(event["message"].get("usage") or {})
        elif kind == "content_block_start":
            return self._start(event["index"], event["content_block"])
        elif kind == "content_block_delta":
            return self._delta(event["index"], event["delta"])
        elif kind == "content_block_stop" and event["index"] in self._without_arguments:
            return UpstreamEvent(tool_calls=[ToolCallPiece(self._calls[event["index"]], arguments="{}")])
        elif kind == "message_delta":
            return self._end(event)
        return None

    def _start(self, index: int, block: Block) -> UpstreamEvent | None:
        if block["type"] == "text" and block.get("text"):
            return UpstreamEvent(text=block["text"])
        if block["type"] != "tool_use":
            return None
        self._calls[index] = place = len(self._calls)
        arguments = json.dumps(block["input"]) if block.get("input") else ""
        if not arguments:
            self._without_arguments.add(index)
        return UpstreamEvent(tool_calls=[ToolCallPiece(place, block["id"], block["name"], arguments)])

    def _delta(self, index: int, delta: Block) -> UpstreamEvent | None:
        if delta["type"] == "text_delta":
            return UpstreamEvent(text=delta["text"])
        if delta["type"] == "thinking_delta":
            return UpstreamEvent(reasoning=delta["thinking"])
        if delta["type"] == "input_json_delta" and index in self._calls and delta["partial_json"]:
            self._without_arguments.discard(index)
            return UpstreamEvent(tool_calls=[ToolCallPiece(self._calls[index], arguments=delta["partial_json"])])
        return None

    def _end(self, event: dict[str, Any]) -> UpstreamEvent:
        reason = event["delta"].get("stop_reason")
        usage = event.get("usage") or {}
        if usage.get("input_tokens") is not None:
            self._count_prompt(usage)
        return UpstreamEvent(
            finish_reason=FINISH.get(reason, FinishReason.STOP) if reason else None,
            usage=UpstreamUsage(self._prompt_tokens, usage.get("output_tokens") or 0, self._cached_tokens),
            stop_string=event["delta"].get("stop_sequence"),
        )

    def _count_prompt(self, usage: dict[str, Any]) -> None:
        cached, written = usage.get("cache_read_input_tokens"), usage.get("cache_creation_input_tokens")
        self._prompt_tokens = (usage.get("input_tokens") or 0) + (cached or 0) + (written or 0)
        self._cached_tokens = cached


def _turns(messages: list[Message]) -> list[dict[str, Any]]:
    """The conversation as user and assistant turns of blocks; neighbours of one role are one turn."""
    turns: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "system":
            continue
        blocks = [block for part in message.parts if (block := _block(part)) is not None]
        role = "assistant" if message.role == "assistant" else "user"
        if not blocks:
            continue
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        else:
            turns.append({"role": role, "content": blocks})
    return turns


def _block(part: Part) -> Block | None:
    """A part as this API has it; None for what it does not take."""
    if isinstance(part, Text):
        return {"type": "text", "text": part.text} if part.text else None
    if isinstance(part, Image):
        return _image(part.url)
    if isinstance(part, ToolCall):
        return {"type": "tool_use", "id": part.id, "name": part.name, "input": _arguments(part.arguments)}
    if isinstance(part, ToolResult):
        seen = part.parts
        blocks = [block for inner in seen if (block := _block(inner)) is not None]
        only_words = len(seen) <= 1 and all(isinstance(inner, Text) for inner in seen)
        content = "".join(block["text"] for block in blocks) if only_words else blocks
        return {"type": "tool_result", "tool_use_id": part.call_id, "content": content}
    return None


def _image(url: str) -> Block:
    """An image at an address, or in a data URL."""
    kind, mark, data = url.removeprefix("data:").partition(";base64,")
    if not url.startswith("data:") or not mark:
        return {"type": "image", "source": {"type": "url", "url": url}}
    return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}


def _arguments(arguments: str) -> dict[str, Any]:
    """A call's arguments as the object that the API wants; what is none is shown as it was written."""
    try:
        value = json.loads(arguments)
    except json.JSONDecodeError:
        value = None
    return value if isinstance(value, dict) else {"invalid_arguments": arguments}


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    function = tool["function"]
    schema = function.get("parameters") or {"type": "object", "properties": {}}
    described = {"description": function["description"]} if function.get("description") else {}
    strict = {"strict": function["strict"]} if function.get("strict") is not None else {}
    return {"name": function["name"], **described, "input_schema": schema, **strict}


def _output_config(params: ChatParams) -> dict[str, Any] | None:
    effort = params.reasoning_effort
    if effort is None:
        return None
    if effort not in EFFORTS:
        known = ", ".join(EFFORTS)
        raise EngineError(f"reasoning_effort: {effort!r} is none of what this upstream knows: {known}", 400)
    return {"effort": effort}


def _choice(params: ChatParams) -> dict[str, Any] | None:
    choice = params.tool_choice
    if isinstance(choice, dict):
        wanted: dict[str, Any] | None = {"type": "tool", "name": choice["function"]["name"]}
    elif choice is not None:
        wanted = {"type": {"required": "any"}.get(choice, choice)}
    else:
        wanted = None
    if params.parallel_tool_calls is False and (wanted is None or wanted["type"] != "none"):
        wanted = (wanted or {"type": "auto"}) | {"disable_parallel_tool_use": True}
    return wanted
