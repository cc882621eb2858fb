"""A turn's whole context from what is stored: each turn holds what it added, and its ancestors the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, bindparam, literal, select

from turnwise.errors import JournalError
from turnwise.journal import schema
from turnwise.journal.packing import unpack_ids, unpack_json
from turnwise.journal.turns.recorded import WholeTurn, recorded
from turnwise.messages import history_from_chat, text_of

T = schema.turns.c
AT_ONCE = 8
"""Turns whose ancestors one statement asks for. Of more of them PostgreSQL expects so many that it reads all turns."""
_BLOB = select(schema.blobs.c.data).where(schema.blobs.c.id == bindparam("which"))


def _ancestors_with(*columns: ColumnElement[Any]) -> Select[*tuple[Any, ...]]:
    """All turns that the contexts behind some turns (`which`) are stored on, the first one of each first.

    It is one statement, as there may be hundreds of them. ``behind`` says which of these turns a row belongs to.
    """
    first = select(T.id.label("behind"), T.id, literal(0).label("depth"))
    chain = first.where(T.id.in_(bindparam("which", expanding=True))).cte("chain", recursive=True)
    further = select(chain.c.behind, T.parent_id, chain.c.depth + 1).where(T.id == chain.c.id, T.extends_parent)
    chain = chain.union_all(further)
    found = select(chain.c.behind, T.extends_parent, *columns).where(T.id == chain.c.id)
    return found.order_by(chain.c.depth.desc())


# Statements of the hot path are made once: building one takes longer than the database takes to run it.
_WHOLE = _ancestors_with(T.messages, T.prompt_ids, T.answer, T.response_ids)
_IDS = _ancestors_with(T.prompt_ids, T.response_ids)


def read_turns(c: Connection, rows: Sequence[Row[Any]]) -> list[WholeTurn]:
    """The whole turns of rows of `WHOLE`, or of the table."""
    ancestors = _ancestors(c, rows, _WHOLE)
    turns = []
    for row in rows:
        messages, prompt_ids = _joined(ancestors[row.id], row)
        whole = {"messages": history_from_chat(messages), "tools": _tools(c, row), "prompt_ids": prompt_ids}
        turns.append(recorded(WholeTurn, row, **whole))
    return turns


def read_context(c: Connection, row: Row[Any]) -> tuple[list[dict[str, Any]], list[int]]:
    """The messages of a turn, as they are stored, and its prompt ids, from what each of its ancestors added."""
    return _joined(_ancestors(c, [row], _WHOLE)[row.id], row)


def read_prompt_ids(c: Connection, rows: Sequence[Row[Any]]) -> dict[str, list[int]]:
    """The prompt ids alone, by turn."""
    ancestors = _ancestors(c, rows, _IDS)
    return {row.id: _joined_ids(ancestors[row.id], row) for row in rows}


def last_question(row: Row[Any]) -> str | None:
    """What the user says in the message that a turn answers; None where it had tools, or answers something else."""
    if row.tools_id is not None or row.tools:
        return None
    added = history_from_chat(unpack_json(row.messages))
    return text_of(added[-1]) if added and added[-1].role == "user" else None


def _tools(c: Connection, row: Row[Any]) -> list[dict[str, Any]] | None:
    if row.tools_id is None:
        return unpack_json(row.tools) if row.tools else None
    return unpack_json(c.execute(_BLOB, {"which": row.tools_id}).scalar_one())


def _ancestors(
    c: Connection, rows: Sequence[Row[Any]], query: Select[*tuple[Any, ...]]
) -> dict[str, Sequence[Row[Any]]]:
    """By turn, those that it is stored on, the first one first. Raises JournalError where they are gone."""
    behind: dict[str, list[Row[Any]]] = {row.parent_id: [] for row in rows if row.extends_parent}
    parents = list(behind)
    for start in range(0, len(parents), AT_ONCE):
        for step in c.execute(query, {"which": parents[start : start + AT_ONCE]}):
            behind[step.behind].append(step)
    for row in rows:
        if row.extends_parent and (not behind[row.parent_id] or behind[row.parent_id][0].extends_parent):
            raise JournalError(f"turn {row.id} goes on from a turn that is not there any more")
    return {row.id: behind[row.parent_id] if row.extends_parent else [] for row in rows}


def _joined(ancestors: Sequence[Row[Any]], row: Row[Any]) -> tuple[list[dict[str, Any]], list[int]]:
    messages: list[dict[str, Any]] = []
    for step in ancestors:
        messages += unpack_json(step.messages)
        messages.append(unpack_json(step.answer))
    return messages + unpack_json(row.messages), _joined_ids(ancestors, row)


def _joined_ids(ancestors: Sequence[Row[Any]], row: Row[Any]) -> list[int]:
    ids: list[int] = []
    for step in ancestors:
        ids += unpack_ids(step.prompt_ids)
        ids += unpack_ids(step.response_ids)
    return ids + unpack_ids(row.prompt_ids)
