"""A journal that was written anew gives rows other numbers: what stands on their order holds."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import Engine, select

from tests.support.versions import answered
from turnwise.config import load_config
from turnwise.errors import JournalError
from turnwise.journal import Journal
from turnwise.journal.clocks import T
from turnwise.journal.deletion import erasing
from turnwise.journal.deletion.erasing import erase_turns, vacuum
from turnwise.journal.dialects import sqlite

pytestmark = pytest.mark.files


def test_the_order_holds_and_retries_are_known_after_it(tmp_path: Path) -> None:
    config = load_config(overrides={"home": tmp_path / "home"})
    journal = Journal.open(config)
    gone = [answered(journal, session_id=f"gone-{n}") for n in range(40)]
    stays = [answered(journal, session_id=f"s{n}", request_hash="hash") for n in (1, 2, 3)]
    answered_again = answered(journal, session_id="s1", request_hash="hash")
    with journal.store.transaction() as c:
        erase_turns(journal.store, c, gone)
    journal.close()

    journal = Journal.open(config, boot="another")  # all that is there is of an earlier boot
    assert journal.store.boot_turn > 40
    vacuum(journal)
    new = answered(journal, session_id="s2", request_hash="hash")
    with journal.store.reading() as c:
        assert c.execute(select(T.id).order_by(T.seq)).scalars().all() == [*stays, answered_again, new]
    assert [row["id"] for row in journal.sessions.last_seen(3)] == ["s2", "s1", "s3"]
    reopened = Journal.open(config, boot="another")  # what the file says, as another process reads it
    assert reopened.store.boot_turn == journal.store.boot_turn
    recent = {row.id: reopened.lookups.is_recent(row, 60) for row in reopened.lookups.same_request("client", "hash")}
    assert recent == {**dict.fromkeys([*stays, answered_again], False), new: True}
    reopened.close()
    journal.close()


def test_a_vacuum_that_fails_leaves_retries_known_and_no_gateway_starts_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for VACUUM fails, as on a full disk."""
    config = load_config(overrides={"home": tmp_path / "home"})
    journal = Journal.open(config)
    answered(journal)
    run, held = sqlite._outside_of_transactions, []

    def failing(engine: Engine, statement: str) -> list[object]:
        if statement == "VACUUM":
            held.append(erasing.is_served(config.home))
            raise JournalError("the disk is full")
        return run(engine, statement)

    with monkeypatch.context() as patch:
        patch.setattr(sqlite, "_outside_of_transactions", failing)
        with pytest.raises(JournalError, match="full"):
            vacuum(journal)
    assert held == [True] and not erasing.is_served(config.home)
    for each in (journal, Journal.open(config)):
        answered(each, request_hash="hash")
        assert each.lookups.is_recent(each.lookups.same_request("client", "hash")[0], 60)
        each.close()


def test_a_vacuum_that_was_killed_is_set_right_at_the_next_start(tmp_path: Path) -> None:
    config = load_config(overrides={"home": tmp_path / "home"})
    journal = Journal.open(config)
    answered(journal)
    erasing._set_boot_turn(journal.store, erasing.FAR)
    journal.close()
    journal = Journal.open(config)
    answered(journal, request_hash="hash")
    assert journal.lookups.is_recent(journal.lookups.same_request("client", "hash")[0], 60)
    journal.close()


def test_a_place_that_is_given_again_is_that_of_a_new_turn(tmp_path: Path) -> None:
    """The newest turns, of an earlier boot, are deleted beside the gateway: SQLite gives their numbers out again."""
    config = load_config(overrides={"home": tmp_path / "home"})
    journal = Journal.open(config)
    answered(journal)
    newest = [answered(journal, session_id="gone") for _ in range(5)]
    journal.close()
    gateway, command = Journal.open(config, boot="another"), Journal.open(config, boot="another")
    with command.store.transaction() as c:
        erase_turns(command.store, c, newest)
    answered(gateway, request_hash="hash")
    gateway.lookups.drop_forgotten()  # as it does every second
    for each in (gateway, command):
        assert each.lookups.is_recent(each.lookups.same_request("client", "hash")[0], 60)
        each.close()
