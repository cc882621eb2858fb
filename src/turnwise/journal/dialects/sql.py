"""SQL that SQLite and PostgreSQL write differently, for the rest of the journal to use without knowing which it is."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Dialect, Select, Table, Text, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.types import TypeDecorator

_INSERT = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}
MOST_ROWS = 2**31 - 1
"""A LIMIT that limits nothing, in a number that both databases take."""


class WithoutNul(TypeDecorator[str]):
    """Text on PostgreSQL, which stores no NUL: a replacement character stands for it, in what is looked up as well."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return value if value is None else value.replace("\0", "\ufffd")


def where(sqlite: str, postgresql: str | None = None) -> dict[str, Any]:
    """The rows that a partial index holds, for the arguments of an `Index`."""
    return {"sqlite_where": text(sqlite), "postgresql_where": text(postgresql or sqlite)}


def upsert(c: Connection, table: Table, row: dict[str, Any], changes: dict[str, Any] | None = None) -> None:
    """Insert a row, or change the one with this primary key: all of it where no `changes` are given."""
    new = _INSERT[c.dialect.name](table).values(row)
    c.execute(
        new.on_conflict_do_update(index_elements=list(table.primary_key), set_=row if changes is None else changes)
    )


def insert_missing(c: Connection, table: Table, row: dict[str, Any]) -> None:
    """Insert a row unless there is one with its primary key."""
    c.execute(_INSERT[c.dialect.name](table).values(row).on_conflict_do_nothing())


def insert_missing_from(c: Connection, table: Table, columns: list[str], rows: Select[*tuple[Any, ...]]) -> None:
    """The same for all rows of a query."""
    c.execute(_INSERT[c.dialect.name](table).from_select(columns, rows).on_conflict_do_nothing())


def defer_foreign_keys(c: Connection) -> None:
    """In this transaction a row may go before those that refer to it."""
    c.exec_driver_sql(
        "PRAGMA defer_foreign_keys = ON" if c.dialect.name == "sqlite" else "SET CONSTRAINTS ALL DEFERRED"
    )
