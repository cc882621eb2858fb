"""A migrated journal is the one that the schema describes: tables, columns, indexes; and its triggers are there."""

from __future__ import annotations

import importlib
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from sqlalchemy import create_engine

from tests.support.versions import answered
from turnwise.config import load_config
from turnwise.journal import Journal, schema
from turnwise.journal.migrations import migrations

pytestmark = pytest.mark.files

GROWTH = importlib.import_module("turnwise.journal.migrations.versions.m0006_growth")


def shape(path: Path) -> dict[str, Any]:
    """Every table with its columns, in any order, and every index with what it is of."""
    found: dict[str, Any] = {}
    with closing(sqlite3.connect(path)) as db:
        for kind, name, sql in db.execute("SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'"):
            if name == "alembic_version":
                continue
            if kind == "table":
                columns = db.execute(f"SELECT name, type, \"notnull\", pk FROM pragma_table_info('{name}')").fetchall()
                found[name] = (sorted(columns), "WITHOUT ROWID" in sql)
            elif kind == "index":
                found[name] = " ".join(sql.replace("(", " ( ").replace(")", " ) ").split())
    return found


def triggers(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as db:
        return {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")}


def test_migrations_make_what_the_schema_says(tmp_path: Path) -> None:
    config = load_config(overrides={"home": tmp_path / "home"})
    Journal.open(config).close()
    made = create_engine(f"sqlite:///{tmp_path}/made.db")
    schema.metadata.create_all(made)
    made.dispose()
    assert shape(config.journal_path) == shape(tmp_path / "made.db")
    assert triggers(config.journal_path) == GROWTH.triggers().keys(), "no later migration drops them"


def test_a_journal_with_turns_comes_up_from_before_the_clocks(tmp_path: Path) -> None:
    config = load_config(overrides={"home": tmp_path / "home"})
    journal = Journal.open(config)
    tools = [{"type": "function", "function": {"name": "look"}}]
    turns = [answered(journal, session_id=session, tools=tools) for session in ("a", "b", "a")]
    journal.verdicts.feedback(turns[1], 1, None)
    before = journal.status.figures()
    with journal.store.engine.begin() as c:
        alembic = migrations()
        alembic.attributes["connection"] = c
        command.downgrade(alembic, "0004")
    journal.close()
    assert not triggers(config.journal_path)
    after = Journal.open(config)
    assert after.status.figures() == before
    assert [row["id"] for row in after.sessions.last_seen()] == ["a", "b"]
    turn = after.turns.get(turns[0])
    assert turn is not None and turn.tools == tools
    answered(after, session_id="b")
    assert [row["id"] for row in after.sessions.last_seen()] == ["b", "a"]
    assert shape(config.journal_path)["ix_turns_ready"].endswith("state = 'ready'")
    assert triggers(config.journal_path) == GROWTH.triggers().keys()
    after.close()
