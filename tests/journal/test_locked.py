"""A fault of the whole database fails whoever waits once, not each after the other; one write's fault is its own."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import pytest

from tests.journal.test_group_commit import Held
from tests.support.versions import answered, new_turn
from turnwise.config import load_config
from turnwise.errors import JournalError, JournalFull, JournalUnavailable
from turnwise.journal import Journal, schema
from turnwise.journal import group_commit as group
from turnwise.types import TurnState

pytestmark = pytest.mark.files

PATIENCE_S = 0.3


@pytest.fixture
def journal(home: Path):
    opened = Journal.open(load_config(overrides={"home": home, "journal.busy_timeout_s": PATIENCE_S}))
    yield opened
    opened.close()


def test_a_locked_journal_fails_a_group_once(journal: Journal) -> None:
    """A hundred writes wait while another program holds the file: one wait for it, not a hundred."""
    tried = []
    real = journal.store.transaction

    def counted():
        tried.append(1)
        return real()

    journal.store.writes._transaction = counted
    with sqlite3.connect(journal.store.config.journal_path, isolation_level=None, timeout=10) as other:
        other.execute("BEGIN IMMEDIATE")
        futures = [journal.turns.begin_soon(new_turn(session_id=f"s{i}")) for i in range(100)]
        started = time.monotonic()
        errors = [future.exception(20) for future in futures]
        waited = time.monotonic() - started
        other.execute("ROLLBACK")
    other.close()
    assert all(isinstance(e, JournalUnavailable) and "locked by another writer" in str(e) for e in errors)
    assert not any(isinstance(e, JournalFull) for e in errors)
    assert len(tried) < 10, "not one wait for each"
    assert waited < 20 * PATIENCE_S, "a hundred waits would be five times as long"
    assert answered(journal, session_id="after")


def test_a_full_disk_fails_a_group_once_and_takes_what_comes_when_there_is_room(journal: Journal) -> None:
    tried = []

    def full(c) -> None:
        tried.append(1)
        c.exec_driver_sql("PRAGMA max_page_count = 1")
        for n in range(500):
            c.execute(schema.events.insert().values(at=0.0, kind="x", data=bytes(4000), turn_id=str(n)))

    held = Held(journal)
    futures = [journal.store.writes.submit(full) for _ in range(20)]
    held.release()
    errors = [future.exception(20) for future in futures]
    assert all(isinstance(e, JournalFull) for e in errors)
    assert len(tried) == 1
    journal.store.engine.dispose()
    assert journal.turns.get(answered(journal)).state is TurnState.WAITING


def test_a_fault_of_one_write_is_its_own(journal: Journal) -> None:
    def bad(c) -> None:
        c.exec_driver_sql("INSERT INTO turns (id) VALUES ('no more columns')")

    held = Held(journal)
    good = [journal.turns.begin_soon(new_turn(session_id=f"s{i}")) for i in range(3)]
    wrong = journal.store.writes.submit(bad)
    held.release()
    assert isinstance(wrong.exception(20), JournalError)
    assert not isinstance(wrong.exception(20), JournalUnavailable)
    for future in good:
        future.result(20)


def test_the_queue_of_writes_has_an_end(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "MAX_WAITING", 5)
    held = Held(journal)
    futures = [journal.turns.begin_soon(new_turn(session_id=f"s{i}")) for i in range(5)]
    with pytest.raises(JournalUnavailable, match="5 writes wait for the journal already"):
        journal.turns.begin_soon(new_turn())
    held.release()
    for future in futures:
        future.result(20)
