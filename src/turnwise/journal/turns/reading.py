"""A turn's whole context from what is stored: each turn holds what it added, and its ancestors the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, bindparam, literal, select

from turnwise.errors import JournalError
from turnwise.journal import schema
from turnwise.journal.packing import unpack_ids, unpack_json, unpack_logprobs
from turnwise.messages import from_chat, history_from_chat, text_of
from turnwise.types import Exclusion, FinishReason, Turn, TurnKind, TurnState

T = schema.turns.c
_BLOB = select(schema.blobs.c.data).where(schema.blobs.c.id == bindparam("which"))


def _ancestors_with(*columns: ColumnElement[Any]) -> Select[*tuple[Any, ...]]:
    """All turns that a turn's context is stored on, the first one first; in one statement: there may be hundreds."""
    first = select(T.id, literal(0).label("depth")).where(T.id == bindparam("which"))
    chain = first.cte("chain", recursive=True)
    further = select(T.parent_id, chain.c.depth + 1).where(T.id == chain.c.id, T.extends_parent)
    chain = chain.union_all(further)
    return select(T.extends_parent, *columns).where(T.id == chain.c.id).order_by(chain.c.depth.desc())


# Statements of the hot path are made once: building one takes longer than the database takes to run it.
_WHOLE = _ancestors_with(T.messages, T.prompt_ids, T.answer, T.response_ids)
_IDS = _ancestors_with(T.prompt_ids, T.response_ids)


def read_turn(c: Connection, row: Row[Any]) -> Turn:
    """The whole turn of a row of the table, with its full messages and ids."""
    messages, prompt_ids = read_context(c, row)
    return Turn(
        id=row.id,
        session_id=row.session_id,
        index=row.idx,
        kind=TurnKind(row.kind),
        state=TurnState(row.state),
        exclusion=Exclusion(row.exclusion) if row.exclusion else None,
        parent_id=row.parent_id,
        version=row.version,
        messages=history_from_chat(messages),
        tools=read_tools(c, row),
        answer=from_chat(unpack_json(row.answer)) if row.answer else None,
        finish_reason=FinishReason(row.finish_reason or FinishReason.ERROR),
        prompt_ids=prompt_ids,
        response_ids=unpack_ids(row.response_ids) if row.response_ids else [],
        logprobs=unpack_logprobs(row.logprobs),
        temperature=row.temperature,
        hint_at=row.hint_at,
        bridged=row.bridged,
        created_at=row.created_at,
    )


def read_context(c: Connection, row: Row[Any]) -> tuple[list[dict[str, Any]], list[int]]:
    """The messages of a turn, as they are stored, and its prompt ids, from what each of its ancestors added."""
    ancestors = _ancestors(c, row, _WHOLE)
    messages: list[dict[str, Any]] = []
    for step in ancestors:
        messages += unpack_json(step.messages)
        messages.append(unpack_json(step.answer))
    return messages + unpack_json(row.messages), _joined_ids(ancestors, row)


def read_prompt_ids(c: Connection, row: Row[Any]) -> list[int]:
    """The prompt ids of a turn alone."""
    return _joined_ids(_ancestors(c, row, _IDS), row)


def last_question(row: Row[Any]) -> str | None:
    """What the last user message of a turn says, where the turn has added one."""
    added = history_from_chat(unpack_json(row.messages))
    return next((text_of(m) for m in reversed(added) if m.role == "user"), None)


def read_tools(c: Connection, row: Row[Any]) -> list[dict[str, Any]] | None:
    """The tools of a turn's request."""
    if row.tools_id is None:
        return unpack_json(row.tools) if row.tools else None
    return unpack_json(c.execute(_BLOB, {"which": row.tools_id}).scalar_one())


def _ancestors(c: Connection, row: Row[Any], query: Select[*tuple[Any, ...]]) -> Sequence[Row[Any]]:
    """The turns that a turn is stored on, the first one first. Raises JournalError where they are gone."""
    if not row.extends_parent:
        return []
    found = c.execute(query, {"which": row.parent_id}).all()
    if not found or found[0].extends_parent:
        raise JournalError(f"turn {row.id} goes on from a turn that is not there any more")
    return found


def _joined_ids(ancestors: Sequence[Row[Any]], row: Row[Any]) -> list[int]:
    ids: list[int] = []
    for step in ancestors:
        ids += unpack_ids(step.prompt_ids)
        ids += unpack_ids(step.response_ids)
    return ids + unpack_ids(row.prompt_ids)
