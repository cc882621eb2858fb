"""SQL that SQLite and PostgreSQL write differently, for the rest of the journal to use without knowing which it is."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Dialect, MetaData, Select, Table, Text, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateColumn
from sqlalchemy.types import TypeDecorator

_INSERT = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}
MOST_ROWS = 2**31 - 1
"""A LIMIT that limits nothing, in a number that both databases take."""

IN_ORDER = "in order"
"""What an index has as `info` that on PostgreSQL ends with the order of rows: the columns before it."""


class WithoutNul(TypeDecorator[str]):
    """Text on PostgreSQL, which stores no NUL: a replacement character stands for it, in what is looked up as well.

    It is compared by its bytes, as on SQLite: ids are looked up by their beginning.
    """

    impl = Text
    cache_ok = True

    def __init__(self) -> None:
        super().__init__(collation="C")

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return value if value is None else value.replace("\0", "\ufffd")


def where(sqlite: str, postgresql: str | None = None) -> dict[str, Any]:
    """The rows that a partial index holds, for the arguments of an `Index`."""
    return {"sqlite_where": text(sqlite), "postgresql_where": text(postgresql or sqlite)}


@compiles(CreateColumn, "postgresql")
def _with_the_order(column: CreateColumn, compiler: Any, **given: Any) -> str:
    """The order in which rows were made (`rowid`), which SQLite keeps by itself: SQLAlchemy leaves it out."""
    if column.element.system:
        return f"{column.element.name} BIGINT GENERATED ALWAYS AS IDENTITY UNIQUE"
    return compiler.visit_create_column(column, **given)


def make_tables(c: Connection, metadata: MetaData) -> None:
    """Make the tables and indexes in an empty database."""
    metadata.create_all(c, checkfirst=False)
    for table in metadata.tables.values() if c.dialect.name == "postgresql" else ():
        for key in table.foreign_keys:  # so that they can be deferred; on SQLite all of them can
            name = f"{table.name}_{key.parent.name}_fkey"
            c.exec_driver_sql(f"ALTER TABLE {table.name} ALTER CONSTRAINT {name} DEFERRABLE")
        for index in table.indexes:
            if columns := index.info.get(IN_ORDER):
                some = index.dialect_options["postgresql"]["where"]
                statement = f"CREATE INDEX {index.name} ON {table.name} ({', '.join(columns)}, rowid)"
                c.exec_driver_sql(statement + ("" if some is None else f" WHERE {some}"))


def make_trigger(c: Connection, name: str, table: str, after: str, does: str, when: str | None) -> None:
    """Make a trigger in place of the one of that name: what it `does` to each row `when` something was done to it."""
    head = f"CREATE TRIGGER {name} AFTER {after} ON {table} FOR EACH ROW" + (f" WHEN ({when})" if when else "")
    if c.dialect.name == "sqlite":
        statements = [f"DROP TRIGGER IF EXISTS {name}", f"{head} BEGIN {does} END"]
    else:
        function = f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql"
        statements = [
            f"DROP TRIGGER IF EXISTS {name} ON {table}",
            f"{function} AS $$ BEGIN {does} RETURN NULL; END $$",
            f"{head} EXECUTE FUNCTION {name}()",
        ]
    for statement in statements:
        c.exec_driver_sql(statement)


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
