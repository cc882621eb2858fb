"""What a responses request asks, as the one internal request: its fields checked, its input items as typed messages."""

from __future__ import annotations

from typing import Any, Literal, TypeGuard, get_args

from openai.types.responses import ResponseIncludable
from openai.types.shared import Reasoning
from pydantic import BaseModel, ConfigDict, Field, StrictBool, ValidationError

from turnwise.agents.known import ITEM_MARKS
from turnwise.gateway.errors import ApiError
from turnwise.gateway.wire.content import read_content, read_text
from turnwise.gateway.wire.request import (
    ModelRequest,
    NamedItems,
    SamplingFields,
    check_conversation,
    checked,
    invalid,
    read_object,
    session_name,
    take_kept,
    take_tool_marks,
    unsupported,
)
from turnwise.gateway.wire.responses.named_items import AnswerUnderWay, item_id
from turnwise.gateway.wire.responses.tools import joined, read_tools
from turnwise.gateway.wire.servers_own import SERVERS_OWN
from turnwise.gateway.wire.thinking import asked_thinking
from turnwise.gateway.wire.tool_choice import openai_choice
from turnwise.messages import result_of, saying
from turnwise.types import Message, ToolCall

KEPT_FIELDS = frozenset(
    {
        "user",
        "store",
        "service_tier",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        "reasoning",
        "include",
        "client_metadata",
        "stream_options",
        "context_management",
        "access_programs",
        "max_tool_calls",
    }
)
"""Fields that change nothing here; they are written to the record."""

NEUTRAL_VALUES: dict[str, tuple[Any, ...]] = SERVERS_OWN | {
    "background": (None, False),
    "conversation": (None,),
    "prompt": (None,),
    "truncation": (None, "auto", "disabled"),
    "image": (None,),
    "moderation": (None,),
}
INCLUDABLE = get_args(ResponseIncludable)
ITEM_FIELDS = {
    "message": {"role", "content"},
    "reasoning": {"content", "summary", "encrypted_content"},
    "function_call": {"call_id", "name", "arguments", "namespace"},
    "function_call_output": {"call_id", "output", "name", "namespace"},
    "item_reference": set(),
}
UNSEEN = ITEM_MARKS | {
    *("type", "id", "status", "phase", "end_turn", "caller", "created_by", "metadata", "cache_control"),
    *("parsed_arguments", "provider_specific_fields", "async", "async_"),
}
"""Fields of an item that a client sends along and no model sees.

OpenAI's SDK puts `parsed_arguments` beside arguments and dumps `async` as `async_`.
"""
TEXT_PARTS = ("input_text", "output_text", "text", "refusal", "summary_text", "reasoning_text")


class TextFormat(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)
    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None


class TextSettings(BaseModel):
    model_config = ConfigDict(extra="forbid")
    format: TextFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class ResponsesFields(SamplingFields):
    """The fields of a responses request that turnwise honours."""

    model_config = ConfigDict(extra="forbid")

    model: str
    input: str | list[dict[str, Any]] | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    stream: bool | None = None
    top_logprobs: int | None = None
    max_output_tokens: int | None = Field(default=None, ge=1)
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: StrictBool | None = None
    text: TextSettings | None = None
    metadata: dict[str, str] | None = None


def parse_request(body: bytes) -> ModelRequest:
    """Check a body. Raises ApiError (400) that names the field."""
    raw = read_object(body)
    kept = take_kept(raw, KEPT_FIELDS, NEUTRAL_VALUES) | take_tool_marks(raw)
    given = checked(raw, ResponsesFields)
    if given.top_logprobs:
        raise unsupported("top_logprobs", "only the log-probs of the sampled tokens are known; leave it at 0")
    include = kept.get("include") or []
    if not isinstance(include, list):
        raise invalid("include", "must be a list")
    if unknown := [wanted for wanted in include if wanted not in INCLUDABLE]:
        raise invalid("include", f"there is nothing called {unknown[0]!r}")
    messages, named_items = _messages(given.input)
    previous = given.previous_response_id
    if previous is not None and (not messages or messages[-1].role == "assistant"):
        raise invalid("input", "needs something new after the previous response")
    if given.instructions:
        messages.insert(0, saying("system", given.instructions))
        named_items = {i + 1: named for i, named in named_items.items()}
    if previous is None and not named_items:  # what is put in later is checked then
        check_conversation(messages, "input")
    tools = read_tools(given.tools or [])
    choice = given.tool_choice
    named_tool = joined(choice.get("namespace"), choice["name"]) if _names_a_tool(choice) else None
    record = given.model_dump(exclude={"input", "tools", "model"}, exclude_none=True, by_alias=True) | kept
    return ModelRequest(
        model=given.model,
        messages=messages,
        named_items=named_items,
        tools=tools.offered if tools.offered and choice != "none" else None,
        withheld=tools.offered if choice == "none" else None,
        tool_choice=openai_choice(choice, named_tool, tools.offered),
        parallel_tool_calls=given.parallel_tool_calls is not False,
        thinking=asked_thinking(kept),
        max_tokens=given.max_output_tokens,
        sampling=given.sampling(),
        structured=_schema(given.text),
        structured_field="text.format",
        stream=bool(given.stream),
        logprobs="message.output_text.logprobs" in include,
        record=record | ({"ignored_tools": tools.ignored} if tools.ignored else {}),
        session=session_name(kept.get("prompt_cache_key")),
        ignored=tuple(tool["type"] for tool in tools.ignored),
        previous=None if previous is None else f"turn-{previous.removeprefix('resp_')}",
        options={
            "tools": tools.echoed,
            "groups": tools.groups,
            "reasoning": _echoed_reasoning(kept.get("reasoning")),
        },
    )


def _messages(given: str | list[dict[str, Any]] | None) -> tuple[list[Message], NamedItems]:
    """Input items as messages, and what of them the record has.

    A reasoning item, a message and the calls after it are one assistant message.
    """
    if isinstance(given, str):
        return [saying("user", given)], {}
    said: list[Message | AnswerUnderWay] = []
    answer: AnswerUnderWay | None = None
    for i, item in enumerate(given or []):
        where = f"input.{i}"
        kind = item.get("type") or ("message" if "role" in item else "item_reference" if "id" in item else None)
        told = {key for key, value in item.items() if value is not None}
        unknown = told - UNSEEN - ITEM_FIELDS.get(str(kind), told)
        if unknown:
            param = f"{where}.{min(unknown)}"
            raise ApiError(400, f"unknown field '{param}'", param=param, code="unknown_parameter")
        if kind == "message" and item.get("role") != "assistant":
            answer = None
            said.append(_message(where, item))
        elif kind in ("message", "reasoning", "function_call", "item_reference"):
            named = item_id(item.get("id")) if kind == "item_reference" else None
            if answer is None or (named is not None and not answer.goes_on_with(named)):
                answer = AnswerUnderWay()
                said.append(answer)
            if named is None:
                _extend(where, answer, str(kind), item)
            else:
                answer.name(named)
        elif kind == "function_call_output":
            answer = None
            said.append(_output(where, item))
        else:
            text = f"{where}: an item of type {kind!r} is not supported"
            raise ApiError(400, text, param=where, code="unsupported_content")
    messages = [one.message() if isinstance(one, AnswerUnderWay) else one for one in said]
    return messages, {i: one.named for i, one in enumerate(said) if isinstance(one, AnswerUnderWay) and one.named}


def _message(where: str, item: dict[str, Any]) -> Message:
    role = item.get("role")
    if role not in ("user", "system", "developer"):
        raise invalid(where, f"the role must be user, system, developer or assistant, not {role!r}")
    role = "system" if role == "developer" else role
    return Message(role, read_content(role, _content(where, item, "content"), TEXT_PARTS, f"{where}.content"))


def _extend(where: str, answer: AnswerUnderWay, kind: str, item: dict[str, Any]) -> None:
    if kind == "message":
        answer.text.append(read_text("assistant", _content(where, item, "content"), TEXT_PARTS, f"{where}.content"))
    elif kind == "reasoning":
        content = item.get("content") or item.get("summary") or []
        if isinstance(content, list):
            answer.thinking.append(read_text("assistant", content, TEXT_PARTS, f"{where}.content"))
    else:
        for key in ("call_id", "name", "arguments"):
            if not isinstance(item.get(key), str):
                raise invalid(f"{where}.{key}", "a function call needs call_id, name and arguments, all strings")
        if not isinstance(item.get("namespace"), str | None):
            raise invalid(f"{where}.namespace", "must be a string")
        name = joined(item.get("namespace"), item["name"])
        answer.calls.append(ToolCall(name, item["arguments"] or "{}", item["call_id"]))


def _output(where: str, item: dict[str, Any]) -> Message:
    if not isinstance(item.get("call_id"), str):
        raise invalid(f"{where}.call_id", "a function call's output needs the call_id it answers")
    output = read_content("tool", _content(where, item, "output"), TEXT_PARTS, f"{where}.output")
    return result_of(item["call_id"], output)


def _content(where: str, item: dict[str, Any], key: str) -> str | list[Any]:
    given = item.get(key)
    if not isinstance(given, str | list):
        raise invalid(f"{where}.{key}", "must be a string or a list of text parts")
    return given


def _echoed_reasoning(given: Any) -> dict[str, Any] | None:
    """What was asked of the reasoning where OpenAI's type knows it; any other wish is only kept in the record."""
    try:
        return None if given is None else Reasoning.model_validate(given).model_dump(exclude_none=True)
    except ValidationError:
        return None


def _names_a_tool(choice: Any) -> TypeGuard[dict[str, str]]:
    return isinstance(choice, dict) and isinstance(choice.get("name"), str)


def _schema(text: TextSettings | None) -> dict[str, Any] | None:
    if text is None or text.format is None or text.format.type == "text":
        return None
    if text.format.type == "json_schema" and (text.format.schema_ is None or not text.format.name):
        raise invalid("text.format", "a json_schema needs a 'name' and a 'schema'")
    return text.format.schema_ or {"type": "object"}
