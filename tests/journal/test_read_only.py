"""A command that only looks, while a server starts and stops on the same journal: it sees one state or the other."""

from __future__ import annotations

import random

import pytest
from sqlalchemy import func, select

from tests.support.versions import answered
from turnwise.config import Config
from turnwise.doctor.journal import examine_journal
from turnwise.errors import JournalError
from turnwise.journal import Journal, schema
from turnwise.journal.dialects.sqlite import MOST_TRIES
from turnwise.journal.read_only import read_only, read_ours
from turnwise.messages import saying

pytestmark = pytest.mark.files


@pytest.fixture
def recorded(config: Config) -> Config:
    """A home with a journal of 40 turns that no process has open."""
    work(config, 40)
    assert not config.journal_path.with_name("journal.db-wal").exists()
    return config


def work(config: Config, turns: int) -> None:
    """What a server does to the file: it starts, records, and stops."""
    journal = Journal.open(config)
    for n in range(turns):
        answered(journal, messages=[saying("user", f"{n} {random.randbytes(3000).hex()}")])
    journal.close()


def rewrite(config: Config) -> None:
    """The same, and what was there is elsewhere in the file afterwards."""
    journal = Journal.open(config)
    with journal.store.transaction() as c:
        c.execute(schema.turns.delete())
    with journal.store.engine.connect() as c:
        c.execution_options(read_only=True).exec_driver_sql("COMMIT")
        c.exec_driver_sql("VACUUM")
    journal.close()
    work(config, 3)


def test_a_read_that_a_server_came_into_is_done_again(recorded: Config) -> None:
    looks = 0

    def count_twice(journal: Journal) -> tuple[int, int]:
        nonlocal looks
        looks += 1
        with journal.store.reading() as c:
            before = c.execute(select(func.count()).select_from(schema.sessions)).scalar_one()
            if looks == 1:
                rewrite(recorded)
            return before, len(c.execute(select(schema.turns.c.messages)).all())

    assert read_only(recorded, count_twice) == (1, 3)
    assert looks == 2


def test_what_looked_like_damage_is_looked_at_again(recorded: Config) -> None:
    found: list[str] = []

    def check(journal: Journal) -> str:
        with journal.store.reading() as c:
            c.execute(select(schema.sessions)).all()
            if not found:
                rewrite(recorded)
            found.append(c.exec_driver_sql("PRAGMA quick_check(1)").scalar_one())
        if found[-1] != "ok":
            raise JournalError("damaged")  # what `doctor` does
        return found[-1]

    assert read_only(recorded, check) == "ok"
    assert len(found) == 2 and found[0] != "ok"


def test_nothing_is_read_twice_nor_left_behind_when_nobody_comes(recorded: Config) -> None:
    looks = 0
    files = sorted(recorded.home.iterdir())

    def count(journal: Journal) -> int:
        nonlocal looks
        looks += 1
        return sum(journal.status.figures()["turns"].values())

    assert read_ours(recorded, count) == 40
    assert looks == 1
    assert sorted(recorded.home.iterdir()) == files


def test_a_server_that_came_and_stays_is_read_beside(recorded: Config) -> None:
    servers: list[Journal] = []

    def count(journal: Journal) -> int:
        if not servers:
            servers.append(Journal.open(recorded))
            answered(servers[0])
        return sum(journal.status.figures()["turns"].values())

    assert read_ours(recorded, count) == 41, "what stands in the write-ahead log alone is seen"
    servers[0].close()


def test_damage_stays_damage(recorded: Config) -> None:
    data = bytearray(recorded.journal_path.read_bytes())
    data[4096:] = b"\x5a" * (len(data) - 4096)
    recorded.journal_path.write_bytes(data)
    looks = 0

    def status(journal: Journal) -> object:
        nonlocal looks
        looks += 1
        return journal.status.figures()

    with pytest.raises(JournalError, match="damaged"):
        read_only(recorded, status)
    assert looks == 1
    [(check, level, said)] = examine_journal(recorded)
    assert (check, level) == ("journal", "fault") and "damaged" in said


def test_a_journal_that_never_rests_is_said(recorded: Config) -> None:
    looks = 0

    def restless(_journal: Journal) -> None:
        nonlocal looks
        looks += 1
        work(recorded, 1)

    with pytest.raises(JournalError, match="changed all the time"):
        read_only(recorded, restless)
    assert looks == MOST_TRIES
