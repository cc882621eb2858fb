"""What a chat completions request asks, as the one internal request: its fields checked, its messages typed.

Every field is honoured, kept in the record, or refused by name with a 400; none is silently dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool

from turnwise.gateway.errors import ApiError
from turnwise.gateway.wire.content import read_content
from turnwise.gateway.wire.request import (
    TOOL_NAME,
    ModelRequest,
    SamplingFields,
    check_conversation,
    check_stops,
    check_tool_names,
    checked,
    invalid,
    read_object,
    session_name,
    take_kept,
    take_tool_marks,
)
from turnwise.gateway.wire.servers_own import SERVERS_OWN
from turnwise.gateway.wire.thinking import asked_thinking, upstreams_arguments
from turnwise.gateway.wire.tool_choice import openai_choice
from turnwise.messages import Content
from turnwise.types import Message, Text, Thinking, ToolCall, ToolResult

ROLES = ("system", "developer", "user", "assistant", "tool")
UPSTREAMS_OWN = frozenset({"thinking", "enable_thinking", "chat_template_kwargs"})
"""Fields that no OpenAI type has; an upstream is given them as they came."""

KEPT_FIELDS = UPSTREAMS_OWN | frozenset(
    {
        "user",
        "metadata",
        "store",
        "service_tier",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        "reasoning_effort",
        "reasoning",
        "verbosity",
    }
)
"""Fields that need no type here; they are written to the record. Some tell whether to think (`thinking`)."""

NEUTRAL_VALUES: dict[str, tuple[Any, ...]] = SERVERS_OWN | {
    "truncation": (None, "auto", "disabled"),
    "n": (None, 1),
    "logit_bias": (None, {}),
    "modalities": (None, ["text"]),
    "top_logprobs": (None, 0),
    "functions": (None, []),
    "function_call": (None, "auto", "none"),
    "audio": (None,),
    "prediction": (None,),
    "web_search_options": (None,),
}
"""Fields of which only these values can be honoured."""

CHOICES = ("n", "logprobs", "top_logprobs", "logit_bias")
"""What an upstream that speaks this format is asked, and gives, as it came."""
TEXT_PARTS = ("text", "input_text", "output_text", "refusal")
MESSAGE_FIELDS = frozenset(
    {"role", "content", "name", "tool_calls", "tool_call_id", "refusal", "reasoning_content", "reasoning"}
)
MESSAGE_MARKS = frozenset(
    {"cache_control", "annotations", "id", "status", "phase", "parsed", "provider_specific_fields"}
)
"""Fields of a message that a client sends along and no model sees.

OpenAI's SDK puts `parsed` beside the content. `provider_specific_fields` is what LiteLLM adds to an answer, and its
clients send it back.
"""


class ChatStreamOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")
    include_usage: bool = False
    include_obfuscation: bool = False


class JsonSchema(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)
    name: str = "answer"
    description: str | None = None
    schema_: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None


class ResponseFormat(BaseModel):
    model_config = ConfigDict(extra="forbid")
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    def as_schema(self) -> dict[str, Any] | None:
        if self.type == "text":
            return None
        if self.type == "json_object":
            return {"type": "object"}
        if self.json_schema is None:
            raise invalid("response_format.json_schema", "a json_schema needs a 'schema'")
        return self.json_schema.schema_ or {"type": "object"}


class Function(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str = Field(pattern=TOOL_NAME)
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(BaseModel):
    model_config = ConfigDict(extra="forbid")
    type: Literal["function"]
    function: Function


class ChatFields(SamplingFields):
    """The fields of a chat completion request that turnwise honours."""

    model_config = ConfigDict(extra="forbid")

    model: str
    messages: list[dict[str, Any]]
    stream: bool | None = None
    stream_options: ChatStreamOptions | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    stop: str | list[str] | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=20)
    n: int | None = Field(default=None, ge=1, le=128)
    logit_bias: dict[str, float] | None = None
    tools: list[Tool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: StrictBool | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: dict[str, Any] | None = None


def parse_request(body: bytes, *, choices: bool = False) -> ModelRequest:
    """Check a body; with `choices` it may ask for several (`CHOICES`). Raises ApiError (400) that names the field."""
    raw = read_object(body)
    neutral = {"logprobs": (None, False)} | NEUTRAL_VALUES
    own = [name for name in CHOICES if choices and raw.get(name) not in neutral[name]]
    kept = take_kept(raw, KEPT_FIELDS, {k: v for k, v in NEUTRAL_VALUES.items() if k not in own}) | take_tool_marks(raw)
    given = checked(raw, ChatFields)
    if given.stream_options is not None and not given.stream:
        raise ApiError(400, "stream_options goes with stream: true", param="stream_options", code="invalid_value")
    messages = [_message(i, message) for i, message in enumerate(given.messages)]
    check_conversation(messages, "messages")
    tools = [tool.model_dump(exclude_none=True) for tool in given.tools or []]
    check_tool_names(tools)
    choice = given.tool_choice
    function = choice.get("function") if isinstance(choice, dict) else None
    named_tool = function.get("name") if isinstance(function, dict) else None
    stop = [given.stop] if isinstance(given.stop, str) else given.stop or []
    as_given = {name: kept[name] for name in UPSTREAMS_OWN & kept.keys()} | {name: getattr(given, name) for name in own}
    as_given["chat_template_kwargs"] = upstreams_arguments(kept.get("chat_template_kwargs"))
    if given.structured_outputs is not None:
        as_given["structured_outputs"] = given.structured_outputs
    limit = given.max_completion_tokens if given.max_completion_tokens is not None else given.max_tokens
    return ModelRequest(
        model=given.model,
        messages=messages,
        tools=tools if tools and choice != "none" else None,
        withheld=tools if choice == "none" else None,
        tool_choice=openai_choice(choice, named_tool, tools),
        parallel_tool_calls=given.parallel_tool_calls is not False,
        thinking=asked_thinking(kept),
        max_tokens=limit,
        sampling=given.sampling(),
        stops=check_stops(tuple(stop), "stop"),
        structured=given.response_format.as_schema() if given.response_format else None,
        grammar=given.structured_outputs,
        stream=bool(given.stream),
        logprobs=bool(given.logprobs),
        record=given.model_dump(exclude={"messages", "tools", "model"}, exclude_none=True, by_alias=True) | kept,
        session=session_name(kept.get("prompt_cache_key")),
        options={
            "include_usage": given.stream_options is not None and given.stream_options.include_usage,
            "limit_word": "max_tokens" if given.max_completion_tokens is None else "max_completion_tokens",
            "as_given": as_given,
        },
    )


def _message(i: int, given: dict[str, Any]) -> Message:
    """A message with `developer` as `system`, and without its client's marks."""

    def refuse(what: str, code: str = "invalid_value") -> ApiError:
        return ApiError(400, f"messages[{i}]: {what}", param=f"messages.{i}", code=code)

    role = given.get("role")
    if role not in ROLES:
        raise refuse(f"the role must be one of {', '.join(ROLES)}, not {role!r}")
    for key in given.keys() - MESSAGE_FIELDS - MESSAGE_MARKS:
        if given[key] is not None:  # a field that is null says nothing
            if key in ("audio", "function_call"):
                raise refuse(f"{key!r} is not supported", "unsupported_parameter")
            raise refuse(f"unknown field {key!r}", "unknown_parameter")
    content, name, calls = _content(i, given, refuse), given.get("name"), given.get("tool_calls")
    if name is not None and not isinstance(name, str):
        raise refuse("'name' must be a string")
    if calls is not None and (role != "assistant" or not isinstance(calls, list)):
        raise refuse("tool_calls is a list that belongs to an assistant message")
    if role == "tool":
        if not isinstance(given.get("tool_call_id"), str):
            raise refuse("a tool message needs the tool_call_id it answers")
        return Message("tool", (ToolResult(given["tool_call_id"], content),), name)
    if role != "assistant":
        return Message("system" if role == "developer" else role, content, name)
    reasoning = given.get("reasoning_content") or given.get("reasoning")
    thought = (Thinking(reasoning),) if reasoning and isinstance(reasoning, str) else ()
    made = [_call(k, call, refuse) for k, call in enumerate(calls or [])]
    return Message("assistant", (*thought, *content, *made), name)


def _content(i: int, given: dict[str, Any], refuse: Callable[[str], ApiError]) -> Content:
    content = given.get("content")
    if content is None and given["role"] != "assistant":
        raise refuse("content is missing")
    if content is not None and not isinstance(content, str | list):
        raise refuse("content must be a string or a list of text parts")
    read = read_content(given["role"], content or "", TEXT_PARTS, f"messages.{i}.content")
    refusal = given.get("refusal")
    return read or ((Text(refusal),) if refusal and isinstance(refusal, str) else ())


def _call(k: int, call: Any, refuse: Callable[[str], ApiError]) -> ToolCall:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not function["name"]:
        raise refuse("every tool call needs a function with a name")
    arguments = function.get("arguments")
    if arguments is not None and not isinstance(arguments, str):
        raise refuse("a tool call's arguments must be a JSON string")
    given = call.get("id")
    if given is not None and not isinstance(given, str):
        raise refuse("a tool call's id must be a string")
    return ToolCall(function["name"], arguments or "{}", given or f"call_{k}")
