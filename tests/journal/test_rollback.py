"""A rollback changes which version serves, and nothing of what is known about the versions."""

from __future__ import annotations

import sqlite3

import pytest
from sqlalchemy import select

from tests.support.earlier import take_back
from tests.support.versions import publish
from turnwise.config import Config
from turnwise.journal import Journal, schema


def published(journal: Journal) -> dict[int, float]:
    """When each version was published."""
    with journal.store.reading() as c:
        return {row.number: row.published_at for row in c.execute(select(schema.versions))}


@pytest.mark.parametrize("to", [0, 1])
def test_a_rollback_leaves_when_versions_were_published(journal: Journal, to: int) -> None:
    publish(journal)
    publish(journal)
    before = published(journal)
    assert all(before.values())
    journal.versions.serve(to)
    assert journal.versions.latest() == to
    assert published(journal) == before
    journal.versions.serve(2)
    assert (journal.versions.latest(), published(journal)) == (2, before)
    journal.versions.serve(to)
    assert journal.versions.latest() == to
    assert publish(journal) == journal.versions.latest() == 3


@pytest.mark.files
def test_a_home_that_was_rolled_back_before_still_serves_the_base_model(config: Config) -> None:
    """The schema of before kept the rollback in `published_at`."""
    journal = Journal.open(config)
    publish(journal)
    publish(journal)
    made = {version.number: version.created_at for version in journal.versions.all()}
    take_back(journal, "0003")
    journal.close()
    with sqlite3.connect(config.journal_path) as db:
        db.execute("UPDATE versions SET published_at = 0")
    db.close()

    journal = Journal.open(config)
    assert journal.versions.latest() == 0
    assert published(journal) == made
    journal.versions.serve(1)
    assert journal.versions.latest() == 1
    journal.close()
