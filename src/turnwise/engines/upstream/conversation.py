"""What an upstream is asked and what it answers, whichever API it speaks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol

from turnwise.engines.base import SamplingSettings
from turnwise.errors import EngineError
from turnwise.types import FinishReason, Message


@dataclass(frozen=True, slots=True)
class ChatParams:
    """What the client asked for; None is left to the upstream. ``tool_choice`` and ``response_format`` are OpenAI's.

    ``max_tokens_key`` is OpenAI's word for the limit: some models refuse the older one, some servers the newer.
    ``translated`` are those of `max_tokens` and `reasoning_effort` that the client said in another format's words.
    ``as_given`` are fields of servers beside OpenAI's own that a chat client sends for them; Anthropic's API gets none.
    """

    max_tokens: int | None = None
    max_tokens_key: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    sampling: SamplingSettings = field(default_factory=SamplingSettings)
    stop: tuple[str, ...] = ()
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    response_format: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    verbosity: str | None = None
    translated: frozenset[str] = frozenset()
    as_given: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ToolCallPiece:
    """Part of a tool call: its place among the calls, id and name in its first piece, then arguments to be joined."""

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class UpstreamUsage:
    """Tokens as the upstream counts them."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class UpstreamEvent:
    """Something new in an answer. Exactly one event of a whole answer has the ``finish_reason``.

    ``given``: OpenAI's own pieces of the choices behind the first one, and of the first one its log-probs.
    """

    text: str = ""
    reasoning: str = ""
    tool_calls: list[ToolCallPiece] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    usage: UpstreamUsage | None = None
    stop_string: str | None = None
    given: list[dict[str, Any]] = field(default_factory=list)

    def indices(self, ended: bool) -> set[int]:
        """Which choices have a piece here, or end with it."""
        first = {0} if self.finish_reason is not None else set[int]()
        return first | {choice["index"] for choice in self.given if choice.get("finish_reason") or not ended}


def check_types(event: UpstreamEvent) -> None:
    """Raises TypeError for a value that is not of the type the event says: a wire passes on what it was sent."""
    pieces, usage = event.tool_calls, event.usage
    texts: list[Any] = [event.text, event.reasoning, *(piece.arguments for piece in pieces)]
    names: list[Any] = [event.stop_string, *(piece.name for piece in pieces), *(piece.id for piece in pieces)]
    counts: list[Any] = [usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens or 0] if usage else []
    if not all(isinstance(text, str) for text in texts + [name for name in names if name is not None]):
        raise TypeError("a text is none")
    if not all(isinstance(count, int) for count in counts):
        raise TypeError("a count is none")


def count_calls(event: UpstreamEvent, calls: int) -> int:
    """How many tool calls there are with this event's, after `calls` of them.

    Raises EngineError (502) for a piece that belongs to none of them and does not begin the next one.
    """
    for piece in event.tool_calls:
        index: Any = piece.index
        if type(index) is not int or not 0 <= index <= calls:
            raise EngineError(f"the upstream sent a tool call whose index is not one of 0 to {calls}", 502)
        calls = max(calls, index + 1)
    return calls


class WireFormat(Protocol):
    """How one API writes a request and reads the events of one answer. An instance serves one answer."""

    path: ClassVar[str]
    base_suffix: ClassVar[str]
    """What `path` begins with, taken off an address that already ends with it."""
    longest_name: ClassVar[int]
    """Characters of a tool's name that the API takes."""

    def headers(self, key: str | None) -> dict[str, str]: ...

    def body(
        self, messages: list[Message], tools: list[dict[str, Any]] | None, params: ChatParams, model: str
    ) -> dict[str, Any]: ...

    def read(self, event: dict[str, Any]) -> UpstreamEvent | None:
        """One server-sent event; None when it has nothing for us. Raises EngineError for an error event."""
        ...
