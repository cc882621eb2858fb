"""The journal's bench asks both databases for the same: what it copies to PostgreSQL is what SQLite's file holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import select

from tests.support.postgres import cluster, programs
from tests.support.versions import answered
from turnwise.bench.journal.beside import copy_rows
from turnwise.bench.journal.fill import LONG_SESSION, Size, fill, session_name, turn_name
from turnwise.bench.journal.routes import ROUTES, time_routes
from turnwise.config import load_config
from turnwise.errors import TurnwiseError
from turnwise.journal import Journal, schema
from turnwise.journal.counts import read_counts, recount

TURNS = 400


@pytest.fixture
def url() -> Iterator[str]:
    found = programs()
    if found is None:
        pytest.skip("there is no PostgreSQL here: `make postgres` installs it")
    with cluster(found) as one:
        one.run("CREATE DATABASE bench")
        yield one.url("bench")


def test_a_filled_journal_serves_its_newest_version_and_has_a_batch(tmp_path: Path) -> None:
    config = load_config(overrides={"home": tmp_path})
    fill(config, Size(TURNS, 5, 100))
    with closing(Journal.open(config)) as journal:
        assert journal.versions.latest() == 5
        batch = journal.batches.claim("trainer", 60)
        assert batch is not None and len(batch.samples) == config.train.max_batch


def test_its_routes_are_timed_while_a_version_serves(tmp_path: Path) -> None:
    config = load_config(overrides={"home": tmp_path})
    fill(config, Size(TURNS, 5, 100))
    times = time_routes(config, repeats=2)
    assert set(times) == set(ROUTES)
    assert all(len(taken) == 2 and min(taken) > 0 for taken in times.values())


def test_a_journal_is_copied_as_it_is(tmp_path: Path, url: str) -> None:
    file = load_config(overrides={"home": tmp_path / "file"})
    server = load_config(overrides={"home": tmp_path / "server", "journal.url": url})
    fill(file, Size(TURNS, 5, 100))
    copy_rows(file.journal_path, server)
    with closing(Journal.open(file)) as one, closing(Journal.open(server)) as other:
        assert one.status.figures() == other.status.figures()
        assert one.turns.get(turn_name(5)) == other.turns.get(turn_name(5))
        probes = [[s.turn_id for s in journal.batches.gate_probes(8, [])] for journal in (one, other)]
        assert probes[0] and probes[0] == probes[1]
        for session in (LONG_SESSION, session_name(3)):
            shown = [journal.sessions.show(session) for journal in (one, other)]
            for found in shown:
                assert found is not None and found["turns"]
                del found["seen_mono"]  # the clocks are two: opening the journal set it
            assert shown[0] == shown[1]
        answered(other, session_id="later")
        other.verdicts.feedback(answered(other, session_id="later"), 1, None)
        with other.store.reading() as c:
            assert read_counts(c) == recount(c), "its triggers count"
            order = c.execute(select(schema.turns.c.id).order_by(schema.turns.c.seq)).scalars().all()
        assert list(order[:TURNS]) == [turn_name(n) for n in range(TURNS)]


def test_a_database_in_use_is_left_alone(tmp_path: Path, url: str) -> None:
    file = load_config(overrides={"home": tmp_path / "file"})
    server = load_config(overrides={"home": tmp_path / "server", "journal.url": url})
    fill(file, Size(100, 1, 10))
    with closing(Journal.open(server)) as journal:
        turn = answered(journal)
    with pytest.raises(TurnwiseError, match="give the bench an empty one"):
        copy_rows(file.journal_path, server)
    with closing(Journal.open(server)) as journal:
        assert journal.turns.get(turn) is not None
