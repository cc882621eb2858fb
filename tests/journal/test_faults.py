"""What can be wrong with the file and its folder, what a stop leaves behind, and who may read what is written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import event

from tests.support.versions import answered, new_turn
from turnwise.access_tokens import load_or_make_token
from turnwise.config import Config, load_config
from turnwise.errors import JournalError
from turnwise.journal import Journal
from turnwise.journal.records.export import RecordsExporter
from turnwise.messages import saying
from turnwise.types import Exclusion, TurnState

pytestmark = pytest.mark.files

# -- faults ---------------------------------------------------------------------------------------------------------


def test_faults_of_the_file_are_sentences(tmp_path: Path) -> None:
    bad = load_config(overrides={"home": tmp_path / "bad"})
    bad.home.mkdir()
    bad.journal_path.write_bytes(b"this is no database, it is a text file that is long enough to be read" * 50)
    with pytest.raises(JournalError, match="not a turnwise journal"):
        Journal.open(bad)
    blocked = load_config(overrides={"home": tmp_path / "file" / "below"})
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match="cannot be used"):
        Journal.open(blocked)


def test_a_full_disk_is_a_sentence_and_loses_nothing(journal: Journal) -> None:
    kept = answered(journal)
    with journal.store.engine.connect() as c:
        pages = c.exec_driver_sql("PRAGMA page_count").scalar()
    journal.store.engine.dispose()

    @event.listens_for(journal.store.engine, "connect")
    def limit(connection, _record) -> None:  # the database may not grow: what a full disk does to SQLite
        connection.execute(f"PRAGMA max_page_count={pages}")

    with pytest.raises(JournalError, match="disk is full"):
        for _ in range(100):
            answered(journal, messages=[saying("user", "x" * 5000 + str(_))], prompt_ids=list(range(3000)))
    assert journal.turns.get(kept).state is TurnState.WAITING


def test_a_read_only_database_is_a_sentence_and_can_still_be_read(journal: Journal) -> None:
    kept = answered(journal)
    journal.store.engine.dispose()

    @event.listens_for(journal.store.engine, "connect")
    def protect(connection, _record) -> None:
        connection.execute("PRAGMA query_only=ON")

    with pytest.raises(JournalError, match=r"journal\.db is read-only; give this user write access"):
        journal.status.say("gateway", {})
    with pytest.raises(JournalError, match="is read-only"):
        answered(journal)
    assert journal.turns.get(kept).state is TurnState.WAITING


# -- what a stop leaves behind --------------------------------------------------------------------------------------


def test_turns_without_an_answer_are_excluded_at_the_next_start_and_no_others(journal: Journal) -> None:
    kept = answered(journal)
    journal.turns.begin(new_turn("cut-off", session_id="session-2"))
    journal.turns.begin(new_turn("cut-off-too", session_id="session-3"))
    assert journal.turns.recover_interrupted() == 2
    assert journal.turns.recover_interrupted() == 0
    for turn_id in ("cut-off", "cut-off-too"):
        turn = journal.turns.get(turn_id)
        assert (turn.state, turn.exclusion) == (TurnState.EXCLUDED, Exclusion.INTERRUPTED)
    assert journal.turns.get(kept).state is TurnState.WAITING


# -- who may read it ------------------------------------------------------------------------------------------------


@pytest.fixture
def usual_umask() -> Iterator[None]:
    """What most systems have: new files are readable by everybody, unless the program says otherwise."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.parametrize("existing", [False, True], ids=["new home", "open home"])
def test_what_is_written_is_for_its_owner_alone(config: Config, usual_umask: None, existing: bool) -> None:
    if existing:
        config.home.mkdir(mode=0o755)
    journal = Journal.open(config)
    answered(journal)
    RecordsExporter(journal).export_all()
    load_or_make_token(config.token_path)
    modes = {path.name: path.stat().st_mode & 0o777 for path in config.home.iterdir() if path.is_file()}
    journal.close()
    assert modes.keys() >= {"journal.db", "journal.db-wal", "journal.db-shm", "token", "records.jsonl"}
    assert {name: oct(mode) for name, mode in modes.items() if mode & 0o077 and not name.endswith(".lock")} == {}
