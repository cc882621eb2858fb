"""Recorded turns: one shape, of which more or less is read. What is bulky stays packed until it is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import StrEnum
from operator import attrgetter
from typing import Any, TypeVar

from sqlalchemy import Row, Select, select

from turnwise.journal import schema
from turnwise.journal.packing import unpack_ids, unpack_json, unpack_logprobs, unpack_spans
from turnwise.messages import from_chat, history_from_chat
from turnwise.types import Exclusion, FinishReason, Message, TurnKind, TurnState

T = schema.turns.c


@dataclass(frozen=True, slots=True)
class PossibleParent:
    """Of a recorded turn, what tells whether a request goes on from it."""

    id: str
    session_id: str
    state: TurnState
    context_hash: str | None
    next_state_at: float | None


@dataclass(frozen=True, slots=True)
class SameRequest(PossibleParent):
    """What tells whether a turn with this very request is the one that is asked for again.

    ``finish_reason`` is None until there is an answer. ``seq`` is the turn's place in the order in which turns were
    asked for.
    """

    retry_key: str | None
    finish_reason: FinishReason | None
    begun_mono: float | None
    seq: int


@dataclass(frozen=True, slots=True)
class Turn(SameRequest):
    """A recorded turn as it lies in the journal: with `extends_parent`, what is packed is only what it added to its
    parent's.

    ``hint_at`` is the offset in the whole prompt where a hint for the last user message would be inserted.
    """

    client: str
    kind: TurnKind
    parent_id: str | None
    extends_parent: bool
    version: int
    hint_at: int | None
    prompt_tokens: int
    response_tokens: int
    used_prompt: int | None
    used_response: int | None
    tools_id: int | None = field(compare=False)  # where the tools lie, which older turns have with them
    packed_tools: bytes | None = field(compare=False)
    packed_params: bytes
    packed_answer: bytes | None
    packed_prompt_ids: bytes
    packed_response_ids: bytes | None
    packed_placed: bytes | None
    compression: int | None

    @property
    def placed(self) -> tuple[tuple[int, int], ...]:
        """Where in the whole prompt's ids the person's wishes stand behind their questions: starts and ends."""
        return unpack_spans(self.packed_placed)

    @property
    def answer(self) -> Message | None:
        """The answer; None where there is none yet."""
        return None if self.packed_answer is None else from_chat(unpack_json(self.packed_answer))

    @property
    def stop_string(self) -> str | None:
        """The stop string that ended the answer, if one did."""
        return None if self.packed_answer is None else unpack_json(self.packed_answer).get("stop_string")

    @property
    def params(self) -> dict[str, Any]:
        """What the request asked for beside its messages and tools."""
        return unpack_json(self.packed_params)

    @property
    def response_ids(self) -> list[int]:
        """The ids of the answer [R], as the engine sampled them; empty where there are none."""
        return unpack_ids(self.packed_response_ids) if self.packed_response_ids else []


@dataclass(frozen=True, slots=True)
class WholeTurn(Turn):
    """A recorded turn with its whole context: all messages of its request, its tools, and the ids [P] of its prompt, as
    the engine took them.
    """

    index: int
    exclusion: Exclusion | None
    temperature: float
    bridged: bool
    created_at: float
    packed_logprobs: bytes | None
    packed_next_state: bytes | None
    messages: list[Message]
    tools: list[dict[str, Any]] | None
    prompt_ids: list[int]

    @property
    def logprobs(self) -> list[float] | None:
        """Natural-log probabilities [R] of the response ids at the sampling temperature; None, and never padded, when
        the engine gave none."""
        return unpack_logprobs(self.packed_logprobs)

    @property
    def next_state(self) -> list[Message]:
        """What came back to the answer; empty where nothing has."""
        return history_from_chat(unpack_json(self.packed_next_state)) if self.packed_next_state else []


Read = TypeVar("Read", bound=PossibleParent)
_JOINED = ("messages", "tools", "prompt_ids")
"""Fields of a whole turn that are more than its own row."""
_WORDS: dict[str, type[StrEnum]] = {
    "state": TurnState, "kind": TurnKind, "exclusion": Exclusion, "finish_reason": FinishReason,
}  # fmt: skip


def _columns(kind: type[PossibleParent]) -> list[str]:
    names = (one.name for one in fields(kind) if one.name not in _JOINED)
    return ["idx" if name == "index" else name.removeprefix("packed_") for name in names]


_COLUMNS = {kind: _columns(kind) for kind in (PossibleParent, SameRequest, Turn, WholeTurn)}
_VALUES = {kind: attrgetter(*names) for kind, names in _COLUMNS.items()}
_WORDS_AT = {
    kind: [(at, _WORDS[name]) for at, name in enumerate(names) if name in _WORDS] for kind, names in _COLUMNS.items()
}
CANDIDATE, SAME, STORED = (
    select(*(T[name] for name in _COLUMNS[kind])) for kind in (PossibleParent, SameRequest, Turn)
)
"""What is selected for a `PossibleParent`, for a `SameRequest`, and for a `Turn`."""
WHOLE: Select[*tuple[Any, ...]] = select(*(T[name] for name in (*_COLUMNS[WholeTurn], "messages")))
"""What is selected of the turn itself for a `WholeTurn`."""


def recorded(kind: type[Read], row: Row[Any], **joined: Any) -> Read:
    """A turn of a row that has its columns, and what is `joined` to them."""
    values = list(_VALUES[kind](row))
    for at, word in _WORDS_AT[kind]:
        values[at] = values[at] and word(values[at])
    return kind(*values, **joined)
