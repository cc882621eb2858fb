"""Anthropic's messages on the wire: requests with blocks become plain messages, answers become blocks and their events.

Reasoning is a `thinking` block, a tool call a `tool_use` block. A tool's arguments leave in pieces for as long as they
are valid JSON: this format has no place for anything else. What a field asks that cannot be done is refused by name.
"""

from __future__ import annotations

import json
from typing import Any, Literal

import ijson
import jiter
from anthropic.types import Message as AnthropicMessage
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.responses import Response

from turnwise.engines.answers import AnswerParts
from turnwise.gateway.errors import ApiError
from turnwise.gateway.request import (
    LARGEST_TOP_K,
    TOOL_NAME,
    AnswerHead,
    Final,
    ModelRequest,
    Usage,
    call_id,
    check_conversation,
    check_stops,
    check_tool_names,
    event,
    invalid,
    named,
    read_object,
    session_name,
    take_kept,
    text_of,
    unsupported,
)
from turnwise.types import FinishReason, Message

KEPT_FIELDS = frozenset(
    {
        "metadata",
        "service_tier",
        "thinking",
        "cache_control",
        "context_management",
        "diagnostics",
        "inference_geo",
        "speed",
        "user_profile_id",
        "workspace_id",
        "billing_policy",
    }
)
"""Fields that change nothing here; they are written to the record."""

NEUTRAL_VALUES: dict[str, tuple[Any, ...]] = {
    "container": (None,),
    "mcp_servers": (None, []),
    "fallbacks": (None, []),
    "compaction": (None,),
    "thread": (None,),
}

STOP_REASONS = {
    FinishReason.STOP: "end_turn",
    FinishReason.LENGTH: "max_tokens",
    FinishReason.TOOL_CALLS: "tool_use",
}
ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
REFUSED_BLOCKS = "this is a text model; content of type {kind!r} is not supported"


class AnthropicTool(BaseModel):
    model_config = ConfigDict(extra="ignore")  # marks such as cache_control change nothing
    type: Literal["custom"] | None = None
    name: str = Field(pattern=TOOL_NAME)
    description: str | None = None
    input_schema: dict[str, Any]


class ToolChoice(BaseModel):
    model_config = ConfigDict(extra="forbid")
    type: Literal["auto", "none", "any", "tool"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class OutputConfig(BaseModel):
    model_config = ConfigDict(extra="forbid")
    effort: str | None = None
    format: dict[str, Any] | None = None


class MessagesFields(BaseModel):
    """The fields of a messages request that turnwise honours."""

    model_config = ConfigDict(extra="forbid")

    model: str
    messages: list[dict[str, Any]]
    max_tokens: int | None = Field(default=None, ge=1)
    system: str | list[dict[str, Any]] | None = None
    stream: bool | None = None
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=0, le=LARGEST_TOP_K)
    stop_sequences: list[str] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: ToolChoice | None = None
    output_config: OutputConfig | None = None


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
        raw = read_object(body)
        kept = take_kept(raw, KEPT_FIELDS, NEUTRAL_VALUES)
        try:
            given = MessagesFields.model_validate(raw)
        except ValidationError as e:
            raise named(e) from e
        messages: list[Message] = []
        if given.system:
            parts = given.system if isinstance(given.system, list) else [{"type": "text", "text": given.system}]
            messages.append({"role": "system", "content": text_of(parts, ("text",), "system")})
        for i, message in enumerate(given.messages):
            messages += _plain(i, message)
        check_conversation(messages, "messages")
        tools = [_tool(i, tool) for i, tool in enumerate(given.tools or [])]
        check_tool_names(tools)
        choice = given.tool_choice
        if choice is not None and (choice.type in ("any", "tool") or choice.disable_parallel_tool_use):
            raise unsupported("tool_choice", "only 'auto' and 'none' are: a model cannot be forced to call a tool")
        return ModelRequest(
            model=given.model,
            messages=messages,
            tools=tools if tools and not (choice is not None and choice.type == "none") else None,
            max_tokens=given.max_tokens,
            temperature=given.temperature,
            top_p=given.top_p,
            top_k=given.top_k,
            stops=check_stops(tuple(given.stop_sequences or []), "stop_sequences"),
            structured=_schema(given.output_config),
            stream=bool(given.stream),
            record=given.model_dump(exclude={"messages", "tools", "model", "system"}, exclude_none=True) | kept,
            session=_session(kept.get("metadata")),
        )

    def whole(self, head: AnswerHead, final: Final, logprobs: list[tuple[str, float]] | None) -> dict[str, Any]:
        content: list[dict[str, Any]] = []
        if final.message.get("reasoning_content"):
            thinking = final.message["reasoning_content"]
            content.append({"type": "thinking", "thinking": thinking, "signature": head.turn_id})
        if final.message.get("content"):
            content.append({"type": "text", "text": final.message["content"]})
        for call in final.message.get("tool_calls") or []:
            function = call["function"]
            content.append(
                {"type": "tool_use", "id": call["id"], "name": function["name"], "input": _input(function["arguments"])}
            )
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
        self._check: Any = None  # of the arguments under way; None once they are no longer JSON

    def begin(self) -> bytes:
        usage = {"input_tokens": self._head.prompt_tokens, "output_tokens": 0}
        body = _message_body(self._head, [], usage) | {"stop_reason": None, "stop_sequence": None}
        return _event("message_start", message=body)

    def delta(self, parts: AnswerParts, logprobs: list[tuple[str, float]] | None) -> bytes:
        out = b""
        if parts.reasoning:
            out += self._start("thinking", {"type": "thinking", "thinking": "", "signature": ""})
            out += self._add({"type": "thinking_delta", "thinking": parts.reasoning})
        if parts.content:
            out += self._start("text", {"type": "text", "text": ""})
            out += self._add({"type": "text_delta", "text": parts.content})
        for piece in parts.calls:
            if piece.name is not None:
                block = {
                    "type": "tool_use",
                    "id": call_id(self._head.turn_id, piece.index),
                    "name": piece.name,
                    "input": {},
                }
                out += self._start(f"tool_use {piece.index}", block)
                self._check = ijson.basic_parse_coro(ijson.sendable_list())
            if piece.arguments and self._valid(piece.arguments):
                out += self._add({"type": "input_json_delta", "partial_json": piece.arguments})
        return out

    def end(self, final: Final) -> bytes:
        out = self._close()
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

    def _valid(self, piece: str) -> bool:
        if self._check is None:
            return False
        try:
            self._check.send(piece.encode())
        except (ijson.JSONError, ValueError, SystemError):  # a number of thousands of digits is a SystemError
            self._check = None
        except StopIteration:
            pass
        return self._check is not None


def error_body(error: ApiError) -> dict[str, Any]:
    """An error in Anthropic's shape."""
    kind = ERROR_TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
    message = error.message
    if error.code == "context_length_exceeded":
        message = f"prompt is too long: {message}"  # clients of this format look for these words
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": None}


def usage_body(usage: Usage) -> dict[str, Any]:
    return {"input_tokens": usage.prompt_tokens, "output_tokens": usage.completion_tokens}


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


# -- requests ---------------------------------------------------------------------------------------------------------


def _plain(i: int, message: dict[str, Any]) -> list[Message]:
    """One message with blocks as plain messages: tool results first, then the text; or the assistant's one."""
    where = f"messages.{i}"
    unknown = message.keys() - {"role", "content", "cache_control", "id"}
    if unknown:
        raise ApiError(400, f"{where}: unknown field {min(unknown)!r}", param=where, code="unknown_parameter")
    role, content = message.get("role"), message.get("content")
    if role not in ("user", "assistant", "system"):
        raise invalid(where, f"the role must be 'user' or 'assistant', not {role!r}")
    if isinstance(content, str):
        return [{"role": role, "content": content}]
    if not isinstance(content, list) or any(not isinstance(block, dict) for block in content):
        raise invalid(f"{where}.content", "content must be a string or a list of blocks")
    if role == "assistant":
        return [_assistant(where, content)]
    results: list[Message] = []
    texts: list[dict[str, Any]] = []
    for k, block in enumerate(content):
        if block.get("type") == "tool_result" and role == "user":
            results.append(_tool_result(f"{where}.content.{k}", block))
        else:
            texts.append(block)
    text = text_of(texts, ("text",), f"{where}.content")
    return [*results, {"role": role, "content": text}] if texts or not results else results


def _assistant(where: str, blocks: list[dict[str, Any]]) -> Message:
    texts, thoughts, calls = [], [], []
    for k, block in enumerate(blocks):
        kind = block.get("type")
        at = f"{where}.content.{k}"
        if kind == "text":
            texts.append(text_of([block], ("text",), at))
        elif kind == "thinking":
            if not isinstance(block.get("thinking"), str):
                raise invalid(at, "a thinking block needs a string 'thinking'")
            thoughts.append(block["thinking"])
        elif kind == "redacted_thinking":
            continue  # ours are never redacted: nothing a model of ours said is in it
        elif kind == "tool_use":
            if not isinstance(block.get("id"), str) or not isinstance(block.get("name"), str) or not block["name"]:
                raise invalid(at, "a tool_use block needs an id and a name")
            if not isinstance(block.get("input"), dict):
                raise invalid(at, "a tool_use block's input must be an object")
            arguments = block["input"]
            raw = arguments.get("INVALID_JSON")
            text = raw if set(arguments) == {"INVALID_JSON"} and isinstance(raw, str) else None
            calls.append(
                {
                    "id": block["id"],
                    "type": "function",
                    "function": {"name": block["name"], "arguments": text or json.dumps(arguments, ensure_ascii=False)},
                }
            )
        else:
            raise ApiError(400, f"{at}: {REFUSED_BLOCKS.format(kind=kind)}", param=at, code="unsupported_content")
    message: Message = {"role": "assistant", "content": "".join(texts)}
    if thoughts:
        message["reasoning_content"] = "\n".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    return message


def _tool_result(at: str, block: dict[str, Any]) -> Message:
    if not isinstance(block.get("tool_use_id"), str):
        raise invalid(at, "a tool_result block needs the tool_use_id it answers")
    content = block.get("content")
    if isinstance(content, list):
        content = text_of(content, ("text",), f"{at}.content")
    elif content is not None and not isinstance(content, str):
        raise invalid(at, "a tool result's content must be a string or a list of text blocks")
    text = content or ""
    if block.get("is_error") and not text.lower().startswith("error"):
        text = f"Error: {text}"
    return {"role": "tool", "content": text, "tool_call_id": block["tool_use_id"]}


def _tool(i: int, raw: dict[str, Any]) -> dict[str, Any]:
    kind = raw.get("type")
    if kind not in (None, "custom"):
        raise unsupported(f"tools.{i}", f"a tool of type {kind!r} runs at its vendor's; leave it out")
    try:
        tool = AnthropicTool.model_validate(raw)
    except ValidationError as e:
        error = named(e)
        raise ApiError(400, f"tools.{i}: {error.message}", param=f"tools.{i}.{error.param}", code=error.code) from e
    function: dict[str, Any] = {"name": tool.name, "parameters": tool.input_schema}
    if tool.description:
        function["description"] = tool.description
    return {"type": "function", "function": function}


def _schema(config: OutputConfig | None) -> dict[str, Any] | None:
    if config is None or config.format is None:
        return None
    if config.format.get("type") != "json_schema" or not isinstance(config.format.get("schema"), dict):
        raise invalid("output_config.format", "only {'type': 'json_schema', 'schema': {…}} is known")
    return config.format["schema"]


def _session(metadata: Any) -> str | None:
    """The session that Claude Code writes into `metadata.user_id`, as JSON or behind `_session_`."""
    user = metadata.get("user_id") if isinstance(metadata, dict) else None
    if not isinstance(user, str):
        return None
    if user.startswith("{"):
        try:
            value = json.loads(user).get("session_id")
        except (ValueError, RecursionError, AttributeError):
            return None
        return session_name(value)
    return session_name(user.partition("_session_")[2])
