"""Rows of the journal's tables as they are stored, for what no part of it tells."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select

from turnwise.journal import Journal, schema


def turn_row(journal: Journal, turn_id: str) -> Any:
    """The row of a turn."""
    with journal.store.reading() as c:
        return c.execute(select(schema.turns).where(schema.turns.c.id == turn_id)).one()
