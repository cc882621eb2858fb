"""A migrated journal is as one that is made anew: tables, columns, indexes, triggers; and its turns are there."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from tests.support.earlier import take_back
from tests.support.versions import answered
from turnwise.config import Config, load_config
from turnwise.errors import JournalError
from turnwise.journal import Journal
from turnwise.journal.counts import read_counts, recount
from turnwise.journal.triggers import TRIGGERS

pytestmark = pytest.mark.files


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


def journal_of(version: str, home: Path) -> Config:
    """A home with a journal as an earlier turnwise left it."""
    config = load_config(overrides={"home": home})
    home.mkdir()
    with closing(sqlite3.connect(config.journal_path)) as db:
        db.executescript((Path(__file__).parent / f"journal_{version}.sql").read_text())
    return config


@pytest.mark.parametrize("version", ["0001", "0004"])
def test_migrations_make_what_the_schema_says(tmp_path: Path, version: str) -> None:
    config = journal_of(version, tmp_path / "old")
    fresh = load_config(overrides={"home": tmp_path / "home"})
    for home in (config, fresh):
        Journal.open(home).close()
    assert shape(config.journal_path) == shape(fresh.journal_path)
    named = {trigger.name for trigger in TRIGGERS}
    assert triggers(config.journal_path) == triggers(fresh.journal_path) == named


def test_a_journal_with_turns_comes_up_from_before_the_clocks(tmp_path: Path) -> None:
    after = Journal.open(journal_of("0004", tmp_path / "home"))
    before = {"turns|ready|": 1, "turns|waiting|": 2, "verdicts|person|1": 1, "sessions|open": 2}
    with after.store.reading() as c:
        assert read_counts(c) == recount(c) == {tuple(name.split("|")): n for name, n in before.items()}
    assert [row["id"] for row in after.sessions.last_seen()] == ["a", "b"]
    turn = after.turns.get("turn-0")
    assert turn is not None and turn.tools == [{"type": "function", "function": {"name": "look"}}]
    answered(after, session_id="b")
    assert [row["id"] for row in after.sessions.last_seen()] == ["b", "a"]
    with after.store.reading() as c:
        assert read_counts(c) == recount(c), "its triggers count"
    after.close()


def test_samples_name_the_verdict_they_were_made_of_and_versions_the_turns_they_learned_from(tmp_path: Path) -> None:
    after = Journal.open(journal_of("0004", tmp_path / "home"))
    with after.store.reading() as c:
        assert c.execute(text("SELECT turn_id, verdict FROM samples")).all() == [("turn-1", 1)]
    take_back(after, "0013")
    with after.store.transaction() as c:
        c.execute(text("INSERT INTO provenance (turn_id, session_id, version) VALUES ('gone', 'a', 3)"))
    after.close()
    again = Journal.open(load_config(overrides={"home": tmp_path / "home"}))
    with again.store.reading() as c:
        assert c.execute(text("SELECT turn_id, session_id, version FROM provenance")).all() == [("gone", "a", 3)]
    again.close()


def test_a_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    config = load_config(overrides={"home": tmp_path / "home"})
    config.home.mkdir()
    with closing(sqlite3.connect(config.journal_path)) as db:
        db.executescript("CREATE TABLE sessions (mine TEXT); INSERT INTO sessions VALUES ('kept');")
    with pytest.raises(JournalError, match="already exists"):
        Journal.open(config)
    with closing(sqlite3.connect(config.journal_path)) as db:
        assert db.execute("SELECT name FROM sqlite_master").fetchall() == [("sessions",)]
        assert db.execute("SELECT * FROM sessions").fetchall() == [("kept",)]
