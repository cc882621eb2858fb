"""A person's score on a turn that was trained on, or is in a batch, is recorded and used by the next update."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journal.test_queue import Clock, judged, open_journal, publish_next
from tests.support.rows import turn_row
from tests.support.versions import answered
from turnwise.journal import Journal
from turnwise.journal.deletion.forgetting import forget, plan
from turnwise.journal.deletion.retention import prune
from turnwise.types import Batch, Exclusion, PolicyVersion, TurnState


@pytest.fixture
def journal(home: Path) -> Iterator[Journal]:
    opened = open_journal(home, Clock(), min_batch=1, max_batch=4, max_staleness=2)
    yield opened
    opened.close()


def claimed(journal: Journal) -> Batch:
    batch = journal.batches.claim("t", 60)
    assert batch is not None
    return batch


def rewards(batch: Batch) -> dict[str, float]:
    return {s.turn_id: s.reward for s in batch.samples}


def end(journal: Journal, batch: Batch) -> None:
    version = PolicyVersion(journal.batches.reserve_version(batch), batch.parent, "x", 1.0)
    journal.batches.finish(batch, version)


def learned_from(journal: Journal, turn_id: str) -> list[int]:
    """The versions that say they learned from a turn."""
    return [version.number for version in journal.versions.all() if turn_id in version.turn_ids]


def test_another_mind_on_a_trained_turn_is_in_the_next_update_once(journal: Journal) -> None:
    turn = judged(journal, 1)
    publish_next(journal)
    assert "taken for the next update" in journal.verdicts.feedback(turn, -1, "Be brief.")
    batch = claimed(journal)
    assert rewards(batch) == {turn: -1.0} and batch.samples[0].hint == "Be brief."
    end(journal, batch)
    assert (journal.turns.get(turn).state, learned_from(journal, turn)) == (TurnState.TRAINED, [1, 2])
    assert journal.batches.claim("t", 60) is None, "once"
    assert "already trained" in journal.verdicts.feedback(turn, -1, None), "the same is no other mind"
    assert journal.batches.claim("t", 60) is None
    assert "taken for the next update" in journal.verdicts.feedback(turn, 1, None)
    assert rewards(claimed(journal)) == {turn: 1.0}


@pytest.mark.parametrize("score", [0, 1])
def test_what_says_nothing_else_leaves_a_trained_turn_as_it_is(journal: Journal, score: int) -> None:
    turn = judged(journal, 1)
    publish_next(journal)
    assert "already trained" in journal.verdicts.feedback(turn, score, None)
    assert journal.turns.get(turn).state is TurnState.TRAINED and journal.batches.claim("t", 60) is None


def test_a_mind_that_is_changed_back_before_the_update_changes_nothing(journal: Journal) -> None:
    turn = judged(journal, 1)
    publish_next(journal)
    batch = turn_row(journal, turn).batch_id
    journal.verdicts.feedback(turn, -1, None)
    journal.verdicts.feedback(turn, 1, None)
    assert (journal.turns.get(turn).state, turn_row(journal, turn).batch_id) == (TurnState.TRAINED, batch)
    assert journal.batches.claim("t", 60) is None
    journal.verdicts.feedback(turn, -1, None)
    assert rewards(claimed(journal)) == {turn: -1.0}


def test_what_is_said_of_a_turn_in_a_batch_is_used_when_that_is_published(journal: Journal) -> None:
    turn, other = judged(journal, 1), judged(journal, 1)
    batch = claimed(journal)
    assert "counts when that ends" in journal.verdicts.feedback(turn, -1, None)
    journal.verdicts.feedback(other, 1, None)
    assert rewards(batch)[turn] == 1.0
    end(journal, batch)
    assert journal.turns.get(other).state is TurnState.TRAINED
    assert rewards(claimed(journal)) == {turn: -1.0}
    assert learned_from(journal, turn) == [1]


@pytest.mark.parametrize("ends", ["released", "refused"])
def test_what_is_said_of_a_turn_in_a_batch_is_used_when_that_comes_to_nothing(journal: Journal, ends: str) -> None:
    turn = judged(journal, 1)
    batch = claimed(journal)
    journal.verdicts.feedback(turn, -1, "Be brief.")
    if ends == "released":
        journal.batches.release(batch)
    else:
        journal.batches.refuse(batch, {"accepted": False}, {})
    again = claimed(journal)
    assert rewards(again) == {turn: -1.0} and again.samples[0].hint == "Be brief."
    assert not learned_from(journal, turn)


def test_a_word_that_the_batch_was_made_of_is_none_that_came_late(journal: Journal) -> None:
    """Else what the gate refused would be as good as new each time."""
    turn = answered(journal)
    journal.verdicts.feedback(turn, -1, None)
    journal.batches.refuse(claimed(journal), {"accepted": False}, {})
    assert journal.turns.get(turn).state is TurnState.READY and journal.batches.claim("t", 60) is None


def test_a_turn_that_is_too_old_by_now_stays_trained(journal: Journal) -> None:
    old = judged(journal, 1)
    for _ in range(4):
        publish_next(journal)
        judged(journal, 1, session_id="new", version=journal.versions.latest())
    assert "already trained" in journal.verdicts.feedback(old, -1, None)
    assert journal.turns.get(old).state is TurnState.TRAINED


def test_a_late_sample_that_becomes_stale_is_no_probe_of_the_gate(journal: Journal) -> None:
    """It is well judged and will not be trained on, but a version learned from it."""
    turn = judged(journal, -1)
    publish_next(journal)
    assert "taken" in journal.verdicts.feedback(turn, 1, None)
    train = journal.store.config.train.model_copy(update={"max_staleness": 0})
    journal.store.config = journal.store.config.model_copy(update={"train": train})
    assert journal.batches.claim("t", 60) is None
    assert journal.turns.get(turn).exclusion is Exclusion.STALE
    assert journal.batches.gate_probes(8, exclude=[]) == []


@pytest.mark.parametrize("trained_again", [False, True])
def test_forgetting_names_each_version_that_learned_from_a_turn(journal: Journal, trained_again: bool) -> None:
    turn = judged(journal, 1, session_id="gone")
    publish_next(journal)
    journal.verdicts.feedback(turn, -1, None)
    if trained_again:
        publish_next(journal)
    versions = {n: [turn] for n in ([1, 2] if trained_again else [1])}
    assert plan(journal, "gone").versions == versions
    assert forget(journal, "gone").versions == versions


def test_a_reaction_that_is_forgotten_names_each_version_that_learned_from_it(journal: Journal) -> None:
    turn = answered(journal, session_id="stays")
    answered(journal, session_id="gone", parent_id=turn, answers=turn, next_state=journal.turns.get(turn).messages)
    [task] = journal.judging.claim("j", 1, 60)
    journal.verdicts.feedback(task.turn_id, 1, None)
    publish_next(journal)
    journal.verdicts.feedback(turn, -1, None)
    assert plan(journal, "gone").versions == {1: [turn]}
    assert forget(journal, "gone").versions == {1: [turn]}
    assert journal.turns.get(turn).state is TurnState.READY, "the person's own word stays"


def test_of_a_turn_that_is_pruned_each_version_that_learned_from_it_stays_known(journal: Journal) -> None:
    turn = judged(journal, 1, session_id="old")
    publish_next(journal)
    journal.verdicts.feedback(turn, -1, None)
    publish_next(journal)
    prune(journal, float("inf"), None)
    assert journal.turns.get(turn) is None
    assert plan(journal, "old").versions == {1: [turn], 2: [turn]}


def test_where_scores_teach_nothing_a_late_one_is_recorded_alone(home: Path) -> None:
    journal = open_journal(home, Clock(), min_batch=1, max_batch=4, method="opd")
    turn = judged(journal, 1, "Be brief.")
    publish_next(journal)
    assert "already trained" in journal.verdicts.feedback(turn, -1, "Be long.")
    assert journal.turns.get(turn).state is TurnState.TRAINED
    journal.close()
