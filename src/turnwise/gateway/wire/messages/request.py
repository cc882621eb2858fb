"""What a messages request asks, as the one internal request: its fields checked, its blocks as typed messages."""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from turnwise.agents.known import session_in_user
from turnwise.engines.base import SamplingSettings
from turnwise.gateway.errors import ApiError
from turnwise.gateway.wire.content import no_text, read_content, read_text
from turnwise.gateway.wire.honouring import within
from turnwise.gateway.wire.request import (
    LARGEST_TOP_K,
    TOOL_NAME,
    ModelRequest,
    check_conversation,
    check_stops,
    check_tool_names,
    checked,
    checked_tool,
    invalid,
    no_function,
    read_object,
    session_name,
    take_kept,
    take_tool_marks,
)
from turnwise.gateway.wire.thinking import asked_thinking
from turnwise.gateway.wire.tool_choice import must_call
from turnwise.messages import answer_of, failed, result_of, saying
from turnwise.types import Message, ToolCall

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
}


class AnthropicTool(BaseModel):
    model_config = ConfigDict(extra="forbid")
    type: Literal["custom"] | None = None
    name: str = Field(pattern=TOOL_NAME)
    description: str | None = None
    input_schema: dict[str, Any]
    strict: bool | None = None


class ToolChoice(BaseModel):
    model_config = ConfigDict(extra="forbid")
    type: Literal["auto", "none", "any", "tool"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class OutputConfig(BaseModel):
    model_config = ConfigDict(extra="forbid")
    effort: str | None = None
    format: dict[str, Any] | None = None
    task_budget: dict[str, Any] | None = None


class MessagesFields(BaseModel):
    """The fields of a messages request that turnwise honours."""

    model_config = ConfigDict(extra="forbid")

    model: str
    messages: list[dict[str, Any]]
    max_tokens: int | None = Field(default=None, ge=1)
    system: str | list[dict[str, Any]] | None = None
    stream: bool | None = None
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, ge=0, le=1)
    top_k: int | None = Field(default=None, ge=0, le=LARGEST_TOP_K)
    stop_sequences: list[str] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: ToolChoice | None = None
    output_config: OutputConfig | None = None


def parse_request(body: bytes) -> ModelRequest:
    """Check a body. Raises ApiError (400) that names the field."""
    raw = read_object(body)
    if raw.pop("thread", None) is not None:
        raise _no_threads()
    kept = take_kept(raw, KEPT_FIELDS, NEUTRAL_VALUES) | take_tool_marks(raw)
    given = checked(raw, MessagesFields)
    messages: list[Message] = []
    if given.system:
        messages.append(saying("system", read_text("system", given.system, ("text",), "system")))
    for i, message in enumerate(given.messages):
        messages += _messages(i, message)
    check_conversation(messages, "messages")
    tools = [_tool(i, tool) for i, tool in enumerate(given.tools or [])]
    check_tool_names(tools)
    choice = given.tool_choice
    if choice is not None and choice.type == "tool" and choice.name is None:
        raise invalid("tool_choice.name", "a choice of type 'tool' needs the tool's name")
    return ModelRequest(
        model=given.model,
        messages=messages,
        tools=tools if tools and not (choice is not None and choice.type == "none") else None,
        withheld=tools if choice is not None and choice.type == "none" else None,
        tool_choice=must_call(tools, choice.name) if choice is not None and choice.type in ("any", "tool") else None,
        parallel_tool_calls=not (choice is not None and choice.disable_parallel_tool_use),
        thinking=asked_thinking(kept),
        max_tokens=given.max_tokens,
        sampling=SamplingSettings(temperature=given.temperature, top_p=given.top_p, top_k=given.top_k),
        stops=check_stops(tuple(given.stop_sequences or []), "stop_sequences"),
        structured=_schema(given.output_config),
        structured_field="output_config.format",
        stream=bool(given.stream),
        record=given.model_dump(exclude={"messages", "tools", "model", "system"}, exclude_none=True) | kept,
        session=session_name(session_in_user(within(kept, "metadata", "user_id"))),
        ignored=("citations",) if _wants_citations(given.messages) else (),
    )


def _no_threads() -> ApiError:
    """What tells Anthropic's SDKs to send the whole conversation without a thread, which their tool runners begin."""
    return ApiError(
        400,
        "conversations are not held here between requests; send the whole of it, without 'thread'",
        param="thread",
        code="unsupported_parameter",
        details={"error_code": "thread_unsupported_request", "unsupported": ["thread"]},
    )


def _messages(i: int, given: dict[str, Any]) -> list[Message]:
    """One message with blocks as ours: tool results first, then the text; or the assistant's one."""
    where = f"messages.{i}"
    unknown = {key for key, value in given.items() if value is not None} - {"role", "content", "cache_control", "id"}
    if unknown:
        raise ApiError(400, f"{where}: unknown field {min(unknown)!r}", param=where, code="unknown_parameter")
    role, content = given.get("role"), given.get("content")
    if role not in ("user", "assistant", "system"):
        raise invalid(where, f"the role must be 'user' or 'assistant', not {role!r}")
    if isinstance(content, str):
        return [saying(role, content)]
    if not isinstance(content, list) or any(not isinstance(block, dict) for block in content):
        raise invalid(f"{where}.content", "content must be a string or a list of blocks")
    if role == "assistant":
        return [_answer(where, content)]
    results: list[Message] = []
    said: list[dict[str, Any]] = []
    for k, block in enumerate(content):
        if block.get("type") == "tool_result" and role == "user":
            results.append(_tool_result(f"{where}.content.{k}", block))
        else:
            said.append(_document(block))
    if results and not said:
        return results
    return [*results, Message(role, read_content(role, said, ("text",), f"{where}.content"))]


def _answer(where: str, blocks: list[dict[str, Any]]) -> Message:
    """An assistant's message: what it says before and between its calls is one text before them."""
    text: list[str] = []
    thoughts: list[str] = []
    calls: list[ToolCall] = []
    for k, block in enumerate(blocks):
        kind = block.get("type")
        at = f"{where}.content.{k}"
        if kind == "text":
            text.append(read_text("assistant", [block], ("text",), at))
        elif kind == "thinking":
            if not isinstance(block.get("thinking"), str):
                raise invalid(at, "a thinking block needs a string 'thinking'")
            thoughts.append(block["thinking"])
        elif kind == "redacted_thinking":
            continue  # ours are never redacted: nothing a model of ours said is in it
        elif kind == "tool_use":
            calls.append(_call(at, block))
        else:
            raise no_text(kind, at)
    return answer_of("".join(text), "\n".join(thoughts), calls)


def _call(at: str, block: dict[str, Any]) -> ToolCall:
    if not isinstance(block.get("id"), str) or not isinstance(block.get("name"), str) or not block["name"]:
        raise invalid(at, "a tool_use block needs an id and a name")
    if not isinstance(block.get("input"), dict):
        raise invalid(at, "a tool_use block's input must be an object")
    arguments = block["input"]
    raw = arguments.get("INVALID_JSON")
    text = raw if set(arguments) == {"INVALID_JSON"} and isinstance(raw, str) else None
    return ToolCall(block["name"], text or json.dumps(arguments, ensure_ascii=False), block["id"])


def _tool_result(at: str, block: dict[str, Any]) -> Message:
    if not isinstance(block.get("tool_use_id"), str):
        raise invalid(at, "a tool_result block needs the tool_use_id it answers")
    given = block.get("content")
    if given is not None and not isinstance(given, str | list):
        raise invalid(at, "a tool result's content must be a string or a list of text blocks")
    if isinstance(given, list):
        given = [_document(_found_tool(part)) for part in given]
    result = result_of(block["tool_use_id"], read_content("tool", given or "", ("text",), f"{at}.content"))
    return failed(result) if block.get("is_error") else result


def _wants_citations(messages: list[dict[str, Any]]) -> bool:
    blocks = [block for message in messages if isinstance(message["content"], list) for block in message["content"]]
    return any(isinstance(given := block.get("citations"), dict) and given.get("enabled") is True for block in blocks)


def _document(block: Any) -> Any:
    """A document that is text, with what is said of it, as a block of text; any other block as it is."""
    source = block.get("source") if isinstance(block, dict) and block.get("type") == "document" else None
    if not isinstance(source, dict):
        return block
    if source.get("type") == "text" and isinstance(source.get("data"), str):
        text = source["data"]
    elif source.get("type") == "content":
        inner = source.get("content")
        text = read_text("user", inner or "", ("text",), "source.content")
    else:
        return block
    said = [block[key] for key in ("title", "context") if isinstance(block.get(key), str) and block[key]]
    return {"type": "text", "text": "\n".join([*said, text])}


def _found_tool(part: Any) -> Any:
    """A tool that a client's search found, as text; its definition is in the request's tools from then on."""
    if isinstance(part, dict) and part.get("type") == "tool_reference" and isinstance(part.get("tool_name"), str):
        return {"type": "text", "text": f"found: {part['tool_name']}\n"}
    return part


def _tool(i: int, raw: dict[str, Any]) -> dict[str, Any]:
    kind = raw.get("type")
    if kind not in (None, "custom"):
        raise no_function(i, kind)
    tool = checked_tool(i, raw, AnthropicTool)
    function: dict[str, Any] = {"name": tool.name, "parameters": tool.input_schema}
    if tool.description:
        function["description"] = tool.description
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def _schema(config: OutputConfig | None) -> dict[str, Any] | None:
    if config is None or config.format is None:
        return None
    if config.format.get("type") != "json_schema" or not isinstance(config.format.get("schema"), dict):
        raise invalid("output_config.format", "only {'type': 'json_schema', 'schema': {…}} is known")
    return config.format["schema"]
