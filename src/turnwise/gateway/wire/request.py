"""The one request behind all wire formats, and the checks that no format is spared.

A codec (`chat`, `responses`, `messages`) turns a body into a `ModelRequest` and an answer back into its format; nothing
else in the gateway knows formats. A codec is where messages become typed, and where an answer stops being so.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import jiter
from pydantic import BaseModel, Field, ValidationError
from starlette.responses import Response

from turnwise.engines.base import SamplingSettings
from turnwise.gateway.errors import ApiError
from turnwise.messages import call_answered, calls_of, text_of
from turnwise.patterns import anchored, pattern
from turnwise.tokens.answer_parser import AnswerParts
from turnwise.types import FinishReason, Message

MAX_STOPS = 16
TOOL_NAME = r"^[a-zA-Z0-9_.:-]{1,128}$"
SESSION_ID = anchored(r"[A-Za-z0-9._:@=+-]{1,200}\Z")
LARGEST_TOP_K = 2**31 - 1
TOOL_MARKS = frozenset(
    {
        "allowed_callers",
        "async",
        "cache_control",
        "defer_loading",
        "eager_input_streaming",
        "input_examples",
        "output_schema",
    }
)
"""Fields beside a tool's definition that change nothing here: a deferred tool is offered at once.

`allowed_callers` and `async` only with the values that say what is done anyway.
"""
Fields = TypeVar("Fields", bound=BaseModel)
NamedItems = dict[int, list[str | Message]]
"""What stands for messages, by their places, that the record has: ids of items, and what came whole between them."""
_LINE_BREAKS = tuple((c.encode(), f"\\u{ord(c):04x}".encode()) for c in "\x85\u2028\u2029")
_SURROGATE = pattern(rb"\\u[dD][89a-fA-F]")


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """What is asked of the policy.

    ``tools`` are those the model may call, in OpenAI's chat shape (None: none), and ``withheld`` those that it is
    forbidden to call: a history may speak of them. ``structured`` is a JSON schema that the answer must match, and
    ``structured_field`` where the format has it;
    ``grammar`` is vLLM's `structured_outputs`, as given. ``record`` holds the given fields beside messages and tools.
    ``session`` is an id the body itself names; ``previous`` the id of the turn whose history comes before
    ``messages``, and ``named_items`` what of these the record has. ``options`` is the codec's.
    ``tool_choice`` is the call that must be made, in OpenAI's chat shape (None: the model is free), and without
    ``parallel_tool_calls`` it makes one at most. ``thinking`` says whether the model should think first (None: as it
    does by itself). ``ignored`` names what was asked for and is not done.
    ``prefill`` is the beginning of the answer, which the client wrote: once it is apart, no message has it.
    ``files`` are the pictures that came in it, by their SHA-256, once they are taken in.
    """

    model: str
    messages: list[Message]
    tools: list[dict[str, Any]] | None = None
    withheld: list[dict[str, Any]] | None = None
    max_tokens: int | None = None
    sampling: SamplingSettings = field(default_factory=SamplingSettings)
    stops: tuple[str, ...] = ()
    structured: dict[str, Any] | None = None
    structured_field: str = "response_format"
    grammar: dict[str, Any] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool = True
    thinking: bool | None = None
    stream: bool = False
    logprobs: bool = False
    record: dict[str, Any] = field(default_factory=dict)
    session: str | None = None
    previous: str | None = None
    named_items: NamedItems = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    prefill: str = ""
    files: dict[str, bytes] = field(default_factory=dict)


class SamplingFields(BaseModel):
    """How to sample, in the words that OpenAI's formats and the servers beside OpenAI's own share."""

    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, ge=0, le=1)
    top_k: int | None = Field(default=None, ge=-1, le=LARGEST_TOP_K)
    min_p: float | None = Field(default=None, ge=0, le=1)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    repetition_penalty: float | None = Field(default=None, ge=0.01, le=10)
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63)

    def sampling(self) -> SamplingSettings:
        return SamplingSettings(**{name: getattr(self, name) for name in SamplingFields.model_fields})


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one answer. ``cached_tokens`` is None when the engine does not say."""

    prompt_tokens: int
    completion_tokens: int
    reasoning_tokens: int = 0
    cached_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Delta:
    """What was added to an answer, and the tokens (id, log-prob) that came with it."""

    parts: AnswerParts
    tokens: list[tuple[int, float]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Again:
    """What was given of the answer so far is void: it is sampled anew. No stream ever has it."""


@dataclass(frozen=True, slots=True)
class Final:
    """The complete, durable answer. Its tool calls have ids. ``stop_string`` is the one that ended it, if one did."""

    message: Message
    finish_reason: FinishReason
    usage: Usage
    stop_string: str | None = None
    given: tuple[dict[str, Any], ...] = ()
    """All that the answer's parts had from an upstream as it came."""


@dataclass(frozen=True, slots=True)
class AnswerHead:
    """What is known when an answer begins. ``prompt_tokens`` counts the prompt's."""

    turn_id: str
    request: ModelRequest
    prompt_tokens: int


class StreamWriter(Protocol):
    """Writes one streamed answer as server-sent events."""

    def begin(self) -> bytes: ...

    def delta(self, parts: AnswerParts, logprobs: list[tuple[str, float]] | None) -> bytes: ...

    def end(self, final: Final) -> bytes: ...

    def error(self, error: ApiError) -> bytes: ...


class Codec(Protocol):
    """One wire format."""

    name: str

    def parse(self, body: bytes) -> ModelRequest:
        """Check a body. Raises ApiError (400) that names the field."""
        ...

    def whole(self, head: AnswerHead, final: Final, logprobs: list[tuple[str, float]] | None) -> dict[str, Any]:
        """A complete answer."""
        ...

    def writer(self, head: AnswerHead) -> StreamWriter: ...

    def refusal(self, error: ApiError) -> Response: ...


def call_id(turn_id: str, index: int) -> str:
    """The id of the turn's tool call number `index`: made from the turn's id, so that a replay has it again."""
    return f"call_{turn_id.removeprefix('turn-')[:20]}_{index}"


def event(body: dict[str, Any], name: str | None = None) -> bytes:
    """One server-sent event."""
    head = b"" if name is None else b"event: " + name.encode() + b"\n"
    return head + b"data: " + as_json(body) + b"\n\n"


def as_json(value: Any) -> bytes:
    """JSON for an event. Unicode's own line breaks are escaped: some clients split a stream at them."""
    data = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    for mark, escaped in _LINE_BREAKS:
        data = data.replace(mark, escaped)
    return data


# -- reading bodies ---------------------------------------------------------------------------------------------------


def read_object(body: bytes) -> dict[str, Any]:
    """The body as a JSON object: UTF-8, no lone surrogates, no NaN, no endless nesting. Raises ApiError (400)."""
    try:
        raw = jiter.from_json(body, allow_inf_nan=False)
    except ValueError as e:
        if "hex escape" in str(e) and _SURROGATE.search(body):
            message = "the text holds half of a surrogate pair, which is not Unicode"
            raise ApiError(400, message, code="invalid_text") from e
        raise ApiError(400, f"the request body is not valid JSON: {e}", code="invalid_json") from e
    if not isinstance(raw, dict):
        raise ApiError(400, "the request body must be a JSON object", code="invalid_json")
    return raw


def session_name(given: Any) -> str | None:
    """A session id that a body names in passing, such as a cache key; None where it cannot be one of ours."""
    return given if isinstance(given, str) and SESSION_ID.match(given) else None


def take_kept(raw: dict[str, Any], kept: frozenset[str], neutral: dict[str, tuple[Any, ...]]) -> dict[str, Any]:
    """Move the fields that change nothing out of `raw`, and refuse those whose value would have to change something."""
    for name, allowed in neutral.items():
        if raw.get(name) is not None and not any(
            raw[name] == value and type(raw[name]) is type(value) for value in allowed
        ):
            raise unsupported(name)
        raw.pop(name, None)
    for name in [name for name, value in raw.items() if value is None]:
        del raw[name]  # a field that is null says nothing, whether it is known here or not
    return {name: raw.pop(name) for name in kept & raw.keys()}


def unsupported(field_name: str, why: str = "leave it out") -> ApiError:
    message = f"'{field_name}' is not supported here; {why}"
    return ApiError(400, message, param=field_name, code="unsupported_parameter")


def invalid(param: str, message: str, code: str = "invalid_value") -> ApiError:
    return ApiError(400, f"'{param}': {message}", param=param, code=code)


def checked(raw: dict[str, Any], model: type[Fields]) -> Fields:
    """The fields of a body. Raises ApiError (400) that names the first one that is unfit."""
    try:
        return model.model_validate(raw)
    except ValidationError as e:
        raise _named(e) from e


def _named(error: ValidationError) -> ApiError:
    """Pydantic's first complaint as a refusal that names the field."""
    detail = error.errors()[0]
    location = ".".join(
        str(part) for part in detail["loc"] if not str(part).startswith(("literal", "list[", "dict[", "function-"))
    )
    if detail["type"] == "extra_forbidden":
        return ApiError(400, f"unknown field '{location}'", param=location, code="unknown_parameter")
    if detail["type"] == "missing":
        return ApiError(400, f"the field '{location}' is required", param=location, code="missing_parameter")
    return ApiError(400, f"'{location}': {detail['msg']}", param=location, code="invalid_value")


# -- checks shared by all formats -------------------------------------------------------------------------------------


def check_stops(stops: tuple[Any, ...], param: str) -> tuple[str, ...]:
    if len(stops) > MAX_STOPS or any(not isinstance(stop, str) or not stop for stop in stops):
        raise ApiError(400, f"'{param}' takes up to {MAX_STOPS} non-empty strings", param=param, code="invalid_value")
    return stops


def check_conversation(messages: list[Message], param: str) -> None:
    """What every format asks of a conversation: something to answer, and tool results that belong to calls."""
    if not messages:
        raise ApiError(400, f"'{param}' is empty; send at least one user message", param=param, code="invalid_value")
    if fault := _unfit_beginning(messages):
        raise ApiError(400, fault, param=param, code="invalid_value")
    known: set[str] = set()
    for i, message in enumerate(messages):
        ids = [call.id for call in calls_of(message)]
        if len(set(ids)) < len(ids):
            text = f"message {i} has two tool calls with the same id"
            raise ApiError(400, text, param=param, code="invalid_value")
        known.update(ids)
        answered = call_answered(message)
        if answered is not None and answered not in known:
            text = f"message {i} is the result of tool call {answered!r}, which is not in the history"
            raise ApiError(400, text, param=param, code="invalid_value")


def _unfit_beginning(messages: list[Message]) -> str | None:
    """Why the last message, where it is the assistant's, is no beginning of an answer that could be gone on with."""
    if messages[-1].role != "assistant":
        return None
    if calls_of(messages[-1]):
        return "the last message is the assistant's and calls tools; add their results"
    if len(messages) == 1 or messages[-2].role == "assistant":
        return "the last message is the assistant's; add the user's or a tool's before it, or the user's reply to it"
    return None


def without_prefill(request: ModelRequest) -> ModelRequest:
    """The request with the beginning of the answer, where its last message is one, apart from the conversation."""
    if request.prefill or request.messages[-1].role != "assistant":
        return request
    *messages, last = request.messages
    return replace(request, messages=messages, prefill=text_of(last))


def checked_tool(i: int, raw: dict[str, Any], model: type[Fields]) -> Fields:
    """Tool number `i` without what this server does not know. Raises ApiError (400) that names it."""
    try:
        return checked(raw, model)
    except ApiError as e:
        raise ApiError(400, f"tools.{i}: {e.message}", param=f"tools.{i}.{e.param}", code=e.code) from e


def unforced() -> ApiError:
    """The refusal of a choice of tools that would have to make the model call one."""
    return unsupported("tool_choice", "only 'auto' and 'none' are: this engine cannot make a model call a tool")


def no_function(i: int, kind: Any) -> ApiError:
    text = f"only functions with a JSON schema are, and this tool is of type {kind!r}; leave it out"
    return unsupported(f"tools.{i}", text)


def take_tool_marks(raw: dict[str, Any]) -> dict[str, Any]:
    """Move what changes nothing out of the tools of a body, for the record: `tool_marks`, by the tool's place."""
    marks = _marks_of(raw.get("tools"), "tools")
    return {"tool_marks": marks} if marks else {}


def _marks_of(tools: Any, where: str) -> dict[str, Any]:
    marks: dict[str, Any] = {}
    for i, tool in enumerate(tools if isinstance(tools, list) else []):
        if not isinstance(tool, dict):
            continue
        at = f"{where}.{i}"
        function = tool.get("function")
        found = {name: tool.pop(name) for name in TOOL_MARKS & tool.keys()}
        if isinstance(function, dict):
            found |= {name: function.pop(name) for name in TOOL_MARKS & function.keys()}
        if found:
            if found.get("async"):
                raise unsupported(f"{at}.async", "an answer waits for its tools; leave it out")
            callers = found.get("allowed_callers")
            if callers is not None and (not isinstance(callers, list) or "direct" not in callers):
                raise unsupported(f"{at}.allowed_callers", "the model itself calls tools; add 'direct'")
            marks[at] = found
        marks |= _marks_of(tool.get("tools"), f"{at}.tools")
    return marks


def check_tool_names(tools: list[dict[str, Any]] | None) -> None:
    seen: set[str] = set()
    for tool in tools or []:
        name = tool["function"]["name"]
        if name in seen:
            raise ApiError(400, f"two tools have the name {name!r}", param="tools", code="invalid_value")
        seen.add(name)
