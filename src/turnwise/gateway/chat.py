"""OpenAI's chat completions on the wire: a request checked field by field, and answers in its two shapes.

Every field is honoured, kept in the record, or refused by name with a 400; none is silently dropped.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from turnwise.gateway.errors import ApiError
from turnwise.types import Message

ROLES = ("system", "developer", "user", "assistant", "tool")
KEPT_FIELDS = frozenset(
    {
        "user",
        "metadata",
        "store",
        "service_tier",
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
        "reasoning_effort",
        "verbosity",
    }
)
"""Fields that change nothing here; they are written to the record."""

NEUTRAL_VALUES: dict[str, tuple[Any, ...]] = {
    "n": (None, 1),
    "frequency_penalty": (None, 0),
    "presence_penalty": (None, 0),
    "logit_bias": (None, {}),
    "parallel_tool_calls": (None, True),
    "modalities": (None, ["text"]),
    "top_logprobs": (None, 0),
    "min_p": (None, 0),
    "functions": (None, []),
    "function_call": (None,),
    "audio": (None,),
    "prediction": (None,),
    "web_search_options": (None,),
}
"""Fields of which only these values can be honoured."""


class StreamOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")
    include_usage: bool = False
    include_obfuscation: bool = False


class ResponseFormat(BaseModel):
    model_config = ConfigDict(extra="forbid")
    type: Literal["text"]


class Function(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str = Field(pattern=r"^[a-zA-Z0-9_.:-]{1,128}$")
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(BaseModel):
    model_config = ConfigDict(extra="forbid")
    type: Literal["function"]
    function: Function


class ChatRequest(BaseModel):
    """The fields of a chat completion request that turnwise honours."""

    model_config = ConfigDict(extra="forbid", strict=False)

    model: str
    messages: list[Message]
    stream: bool = False
    stream_options: StreamOptions | None = None
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=-1)
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    stop: str | list[str] | None = None
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63)
    logprobs: bool | None = None
    tools: list[Tool] | None = None
    tool_choice: Literal["auto", "none"] | dict[str, Any] | str | None = None
    response_format: ResponseFormat | None = None
    kept: dict[str, Any] = Field(default_factory=dict)

    @property
    def limit(self) -> int | None:
        return self.max_completion_tokens if self.max_completion_tokens is not None else self.max_tokens

    @property
    def stops(self) -> tuple[str, ...]:
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    @property
    def offered_tools(self) -> list[dict[str, Any]] | None:
        """The tools as plain dictionaries; none when the client forbids calling them."""
        if not self.tools or self.tool_choice == "none":
            return None
        return [tool.model_dump(exclude_none=True) for tool in self.tools]

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    def record(self) -> dict[str, Any]:
        """What is written to the record beside the messages."""
        given = self.model_dump(exclude={"messages", "tools", "model", "kept"}, exclude_none=True)
        return given | self.kept


def parse_chat(body: bytes) -> ChatRequest:
    """Read and check a request body. Raises ApiError (400) that names the field."""
    try:
        raw = json.loads(body)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as e:
        raise ApiError(400, f"the request body is not valid JSON: {e}", code="invalid_json") from e
    if not isinstance(raw, dict):
        raise ApiError(400, "the request body must be a JSON object", code="invalid_json")
    kept = {field: raw.pop(field) for field in KEPT_FIELDS & raw.keys()}
    for field, allowed in NEUTRAL_VALUES.items():
        if field in raw and raw[field] not in allowed:
            raise ApiError(
                400, f"'{field}' is not supported here; leave it out", param=field, code="unsupported_parameter"
            )
        raw.pop(field, None)
    format_type = (
        (raw.get("response_format") or {}).get("type") if isinstance(raw.get("response_format"), dict) else None
    )
    if format_type in ("json_object", "json_schema"):
        raise ApiError(
            400,
            f"response_format '{format_type}' is not supported by this engine; ask for JSON in the prompt instead",
            param="response_format",
            code="unsupported_parameter",
        )
    raw.pop("kept", None)
    if b"\\ud" in body.lower():
        _refuse_lone_surrogates(raw)
    try:
        request = ChatRequest.model_validate(raw | {"kept": kept})
    except ValidationError as e:
        raise _invalid(e) from e
    _check_messages(request.messages)
    _check_rest(request)
    return request


def _refuse_lone_surrogates(raw: dict[str, Any]) -> None:
    try:
        json.dumps(raw, ensure_ascii=False).encode()
    except UnicodeEncodeError as e:
        raise ApiError(400, "the text holds half of a surrogate pair, which is not Unicode", code="invalid_text") from e


def _invalid(error: ValidationError) -> ApiError:
    detail = error.errors()[0]
    location = ".".join(str(part) for part in detail["loc"] if not str(part).startswith(("literal", "list[", "dict[")))
    if detail["type"] == "extra_forbidden":
        return ApiError(400, f"unknown field '{location}'", param=location, code="unknown_parameter")
    if detail["type"] == "missing":
        return ApiError(400, f"the field '{location}' is required", param=location, code="missing_parameter")
    return ApiError(400, f"'{location}': {detail['msg']}", param=location, code="invalid_value")


def _check_rest(request: ChatRequest) -> None:
    if any(not isinstance(stop, str) or not stop for stop in request.stops) or len(request.stops) > 16:
        raise ApiError(400, "'stop' takes up to 16 non-empty strings", param="stop", code="invalid_value")
    choice = request.tool_choice
    if choice not in (None, "auto", "none"):
        raise ApiError(
            400,
            "tool_choice can only be 'auto' or 'none': this engine cannot force a call",
            param="tool_choice",
            code="unsupported_parameter",
        )
    if request.stream_options is not None and not request.stream:
        raise ApiError(400, "stream_options goes with stream: true", param="stream_options", code="invalid_value")


def _check_messages(messages: list[Message]) -> None:
    def refuse(i: int, what: str, code: str = "invalid_value") -> ApiError:
        return ApiError(400, f"messages[{i}]: {what}", param=f"messages.{i}", code=code)

    if not messages:
        raise ApiError(400, "'messages' is empty; send at least one user message", param="messages")
    for i, message in enumerate(messages):
        role = message.get("role")
        if role not in ROLES:
            raise refuse(i, f"the role must be one of {', '.join(ROLES)}, not {role!r}")
        content = message.get("content")
        calls = message.get("tool_calls")
        if content is None and not (role == "assistant" and (calls or message.get("refusal"))):
            raise refuse(i, "content is missing")
        if isinstance(content, list):
            for part in content:
                kind = part.get("type") if isinstance(part, dict) else None
                if kind not in ("text", "input_text", "output_text"):
                    raise refuse(
                        i, f"this is a text model; content of type {kind!r} is not supported", "unsupported_content"
                    )
                if not isinstance(part.get("text"), str):
                    raise refuse(i, "a text part needs a string 'text'")
        elif content is not None and not isinstance(content, str):
            raise refuse(i, "content must be a string or a list of text parts")
        if calls is not None:
            if role != "assistant" or not isinstance(calls, list):
                raise refuse(i, "tool_calls is a list that belongs to an assistant message")
            for call in calls:
                function = call.get("function") if isinstance(call, dict) else None
                if not isinstance(function, dict) or not isinstance(function.get("name"), str):
                    raise refuse(i, "every tool call needs a function with a name")
                if not isinstance(function.get("arguments", ""), str):
                    raise refuse(i, "a tool call's arguments must be a JSON string")
        if role == "tool" and not isinstance(message.get("tool_call_id"), str):
            raise refuse(i, "a tool message needs the tool_call_id it answers")
    if all(message["role"] in ("system", "developer") for message in messages):
        raise ApiError(400, "there are only system messages; send at least one user message", param="messages")
    if messages[-1]["role"] == "assistant":
        raise ApiError(
            400, "the last message is the assistant's; add the user's or a tool's reply to it", param="messages"
        )


def for_model(messages: list[Message]) -> list[Message]:
    """Messages as they are recorded and rendered: content as one string, `developer` as `system`, no client marks."""
    shaped = []
    for message in messages:
        content = message.get("content")
        if isinstance(content, list):
            content = "".join(part["text"] for part in content)
        role = "system" if message["role"] == "developer" else message["role"]
        plain: Message = {"role": role, "content": content or ""}
        for key in ("name", "tool_call_id"):
            if message.get(key):
                plain[key] = message[key]
        if message.get("tool_calls"):
            plain["tool_calls"] = [
                {
                    "id": call.get("id") or "",
                    "type": "function",
                    "function": {
                        "name": call["function"]["name"],
                        "arguments": call["function"].get("arguments") or "{}",
                    },
                }
                for call in message["tool_calls"]
            ]
        shaped.append(plain)
    return shaped


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one answer. ``cached_tokens`` is None when the engine does not say."""

    prompt_tokens: int
    completion_tokens: int

    def body(self) -> dict[str, int]:
        total = self.prompt_tokens + self.completion_tokens
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": total,
        }


def logprobs_body(tokens: Iterable[tuple[str, float]]) -> dict[str, Any]:
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


def completion_body(
    turn_id: str, model: str, message: Message, finish_reason: str, usage: Usage, logprobs: dict[str, Any] | None
) -> dict[str, Any]:
    """A whole answer, in the shape that the SDK's own type checks."""
    answer = {"role": "assistant", "content": message.get("content") or None, "refusal": None}
    if message.get("tool_calls"):
        answer["tool_calls"] = message["tool_calls"]
    else:
        answer["content"] = message.get("content") or ""
    body = {
        "id": f"chatcmpl-{turn_id}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [{"index": 0, "message": answer, "finish_reason": finish_reason, "logprobs": logprobs}],
        "usage": usage.body(),
    }
    ChatCompletion.model_validate(body)
    return body


class ChunkWriter:
    """Server-sent events of one streamed answer. Each call gives one event as bytes."""

    def __init__(self, turn_id: str, model: str, include_usage: bool) -> None:
        self._head = {
            "id": f"chatcmpl-{turn_id}",
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": model,
        }
        self._include_usage = include_usage

    def delta(
        self, delta: dict[str, Any], finish_reason: str | None = None, logprobs: dict[str, Any] | None = None
    ) -> bytes:
        choice: dict[str, Any] = {"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": logprobs}
        body = self._head | {"choices": [choice]}
        if self._include_usage:
            body["usage"] = None
        return self._event(body)

    def usage(self, usage: Usage) -> bytes:
        return self._event(self._head | {"choices": [], "usage": usage.body()}) if self._include_usage else b""

    def done(self) -> bytes:
        return b"data: [DONE]\n\n"

    def error(self, error: ApiError) -> bytes:
        return self._event(error.body())

    def _event(self, body: dict[str, Any]) -> bytes:
        return (
            b"data: " + json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n\n"
        )


CHUNK_TYPE = ChatCompletionChunk
"""The SDK's own type for the events above; tests check every event against it."""
