"""What retention believes of clocks, which turns it leaves to the gate, and what others read meanwhile."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

from tests.journal.test_retention import NOW, Clock, add, ids, put
from tests.support.versions import answered, set_aside
from turnwise.config import Config, load_config
from turnwise.errors import UnknownTurn
from turnwise.journal import Journal, schema
from turnwise.journal.deletion.erasing import erase_turns
from turnwise.journal.deletion.retention import DAY_S, Keeper, prune, prune_records
from turnwise.journal.records import edits as record_edits
from turnwise.journal.records.export import RecordsExporter
from turnwise.types import Exclusion, TurnState


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def journal(config: Config, clock: Clock) -> Iterator[Journal]:
    opened = Journal.open(load_config(overrides={"home": config.home, "journal.keep_days": 90}), clock)
    yield opened
    opened.close()


def keep(journal: Journal, clock: Clock, rounds: int = 3) -> None:
    keeper = Keeper(journal, steady=itertools.count(clock.now - NOW, 1000.0).__next__)
    for _ in range(rounds):
        keeper.tick()


def test_a_start_with_the_clock_a_year_ahead_deletes_nothing(journal: Journal, clock: Clock) -> None:
    old = add(journal, n=0)
    clock.now += 60 * DAY_S
    recent = add(journal, n=1)
    for turn_id in (old, recent):
        put(journal, turn_id, TurnState.EXCLUDED)
    clock.now += 365 * DAY_S
    keep(journal, clock)
    assert ids(journal) == {old, recent}
    clock.now = NOW + 92 * DAY_S
    newest = add(journal, n=2)
    keep(journal, clock)
    assert ids(journal) == {recent, newest}, "as old as the turns themselves say"


def test_a_clock_that_is_a_year_ahead_is_not_believed_for_the_turns_it_made(journal: Journal, clock: Clock) -> None:
    """At the next start the newest turn is of that clock. One that is so for more than a day is taken for right."""
    kept = {add(journal, n=0)}
    clock.now += 365 * DAY_S
    for n in range(1, 4):
        keep(journal, clock)
        kept.add(add(journal, n=n))
        clock.now += 3600
    for turn_id in kept:
        put(journal, turn_id, TurnState.EXCLUDED)
    keep(journal, clock)
    assert ids(journal) == kept
    clock.now += DAY_S
    kept.add(add(journal, n=4))
    keep(journal, clock)
    assert len(ids(journal)) == len(kept) - 1


def test_turns_of_a_time_to_come_do_not_keep_those_behind_them(journal: Journal, clock: Clock) -> None:
    clock.now = NOW + 1000 * DAY_S
    ahead = {add(journal, n=n) for n in range(60)}
    clock.now = NOW
    behind = {add(journal, n=n) for n in range(3)}
    for turn_id in ahead | behind:
        put(journal, turn_id, TurnState.EXCLUDED)
    clock.now = NOW + 10 * DAY_S
    assert prune(journal, NOW + 5 * DAY_S, None).turns == 3
    assert ids(journal) == ahead


def test_what_the_gate_may_not_look_at_takes_no_place_of_what_it_may(journal: Journal, clock: Clock) -> None:
    good = answered(journal)
    journal.verdicts.feedback(good, 1, None)
    set_aside(journal, good)
    for _ in range(4 * journal.store.config.gate.probes):
        spent = answered(journal)
        journal.verdicts.feedback(spent, 1, None)
        with journal.store.transaction() as c:
            gone = {"state": TurnState.EXCLUDED, "exclusion": Exclusion.FAILED_IN_TRAINING}
            c.execute(schema.turns.update().where(schema.turns.c.id == spent).values(gone))
    clock.now += DAY_S
    prune(journal, clock.now, None)
    assert [s.turn_id for s in journal.batches.gate_probes(8, exclude=[])] == [good] and ids(journal) == {good}


def test_a_dry_run_writes_no_copy_of_the_records(
    journal: Journal, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered(journal)
    RecordsExporter(journal).export_all()
    opened, real = [], record_edits.open_ours
    monkeypatch.setattr(record_edits, "open_ours", lambda path, flags: opened.append(flags) or real(path, flags))
    clock.now += 100
    assert prune_records(journal.store.config, clock.now, dry_run=True) > 0
    assert set(opened) == {os.O_RDONLY}


def test_a_parent_that_was_deleted_meanwhile_is_not_missed(journal: Journal) -> None:
    first = add(journal, n=0)
    second = add(journal, first, n=1)
    row = journal.lookups.turn(second)
    assert row is not None
    whole = [0, 1, 7, 0, 1, 2]
    with journal.store.transaction() as c:
        erase_turns(journal.store, c, [first])
    assert journal.lookups.ids(row) == (whole, [7, 1])
    with journal.store.transaction() as c:
        erase_turns(journal.store, c, [second])
    with pytest.raises(UnknownTurn, match="ask again"):
        journal.lookups.messages(second)
    fresh = Journal.open(journal.store.config, journal.store.clock)
    with pytest.raises(UnknownTurn, match="ask again"):
        fresh.lookups.ids(row)
    fresh.close()
