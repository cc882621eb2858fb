"""Recorded turns as the gateway sees them. What is bulky stays packed until it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import Row, Select, select

from turnwise.journal import schema
from turnwise.journal.packing import unpack_ids, unpack_json
from turnwise.messages import from_chat
from turnwise.types import Message

T = schema.turns.c


@dataclass(frozen=True, slots=True)
class PossibleParent:
    """What tells whether a request goes on from a turn."""

    id: str
    session_id: str
    state: str
    context_hash: str | None
    next_state_at: float | None


@dataclass(frozen=True, slots=True)
class SameRequest:
    """What tells whether a turn with this very request is the one that is asked for again."""

    id: str
    session_id: str
    retry_key: str | None
    finish_reason: str | None
    next_state_at: float | None
    begun_mono: float | None
    seq: int


@dataclass(frozen=True, slots=True)
class StoredTurn:
    """A turn as it lies in the journal: with `extends_parent`, what is packed is only what it added to its parent's.

    ``seq`` is its place in the order in which turns were asked for.
    """

    id: str
    session_id: str
    client: str
    kind: str
    state: str
    parent_id: str | None
    extends_parent: bool
    version: int
    retry_key: str | None
    finish_reason: str | None
    context_hash: str | None
    next_state_at: float | None
    begun_mono: float | None
    seq: int
    hint_at: int | None
    prompt_tokens: int
    response_tokens: int
    used_prompt: int | None
    used_response: int | None
    tools_id: int | None
    packed_tools: bytes | None
    packed_params: bytes
    packed_answer: bytes | None
    packed_prompt_ids: bytes
    packed_response_ids: bytes | None

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
        """The ids of the answer; empty where there are none."""
        return unpack_ids(self.packed_response_ids) if self.packed_response_ids else []


@dataclass(frozen=True, slots=True)
class SessionTurn:
    """A turn of a session that is shown, and what it goes on from."""

    id: str
    kind: str
    parent_id: str | None
    extends_parent: bool
    answer: Message | None


CANDIDATE: Select[*tuple[Any, ...]] = select(*(T[field.name] for field in fields(PossibleParent)))
SAME: Select[*tuple[Any, ...]] = select(*(T[field.name] for field in fields(SameRequest)))
STORED: Select[*tuple[Any, ...]] = select(*(T[field.name.removeprefix("packed_")] for field in fields(StoredTurn)))


def candidates(rows: Sequence[Row[Any]]) -> list[PossibleParent]:
    """Rows of `CANDIDATE`."""
    return [PossibleParent(*row) for row in rows]


def stored(row: Row[Any] | None) -> StoredTurn | None:
    """A row of `STORED`."""
    return None if row is None else StoredTurn(*row)
