"""What the gate refuses goes back, and what it looks at is never trained on."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.journal.test_queue import Clock, judged, open_journal, publish_next, waiting_for_judge
from tests.support.versions import answered
from turnwise.config import load_config
from turnwise.journal import Journal
from turnwise.journal.queue.refusals import wall
from turnwise.sampling import is_set_aside
from turnwise.types import Batch, Exclusion, TurnState

REFUSED = {"accepted": False, "reasons": ["too far (gate.max_step_kl = 0.5)"], "advice": ["lower train.lr"]}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(home: Path, clock: Clock) -> Iterator[Journal]:
    journal = open_journal(home, clock, min_batch=2, max_batch=6, max_age_s=100)
    yield journal
    journal.close()


def refuse_next(journal: Journal) -> set[str]:
    batch = journal.batches.claim("t", 60)
    assert batch is not None
    journal.batches.refuse(batch, REFUSED, {})
    return ids(batch)


def ids(batch: Batch) -> set[str]:
    return {s.turn_id for s in batch.samples}


def test_what_was_refused_is_ready_again_and_waits_for_other_samples(queue: Journal, clock: Clock) -> None:
    refused = {judged(queue), judged(queue)}
    assert refuse_next(queue) == refused
    assert {queue.turns.get(i).state for i in refused} == {TurnState.READY}
    clock.now += 1000
    assert queue.batches.claim("t", 60) is None, "the same batch again would be refused again, however old it is"
    one = judged(queue)
    assert queue.batches.claim("t", 60) is None, "one is no batch, whatever waits beside it"
    both = {one, judged(queue)}
    assert refuse_next(queue) == refused | both


def test_what_was_refused_is_no_more_than_half_of_a_batch(queue: Journal) -> None:
    for _ in range(2):
        judged(queue), judged(queue)
        refuse_next(queue)
    assert queue.status.figures()["turns"]["ready"] == 4
    new = {judged(queue), judged(queue)}
    batch = queue.batches.claim("t", 60)
    assert batch is not None and len(batch.samples) == 4 and new < ids(batch)


def test_another_configuration_makes_refused_samples_as_good_as_new(queue: Journal) -> None:
    refused = {judged(queue), judged(queue)}
    refuse_next(queue)
    looser = queue.store.config.gate.model_copy(update={"max_step_kl": 2.0})
    queue.store.config = queue.store.config.model_copy(update={"gate": looser})
    batch = queue.batches.claim("t", 60)
    assert batch is not None and ids(batch) == refused


def test_a_sample_of_three_refused_batches_is_set_aside_with_its_reason(queue: Journal) -> None:
    first = {judged(queue), judged(queue)}
    refuse_next(queue)
    for _ in range(2):
        judged(queue), judged(queue)
        assert first <= refuse_next(queue)
    assert {queue.turns.get(i).exclusion for i in first} == {Exclusion.REFUSED_BY_GATE}
    assert queue.status.figures()["excluded"] == {str(Exclusion.REFUSED_BY_GATE): 2}
    assert queue.status.figures()["turns"]["ready"] == 4, "the others were in fewer of them"


def test_three_refusals_in_a_row_are_said_with_what_to_do(queue: Journal) -> None:
    for _ in range(3):
        assert wall(queue.batches.refused_in_a_row()) is None
        judged(queue), judged(queue)
        refuse_next(queue)
    said = wall(queue.status.figures()["refused_in_a_row"])
    assert said is not None and "last 3 batches" in said
    assert "gate.max_step_kl = 0.5" in said and "lower train.lr" in said
    judged(queue), judged(queue)
    publish_next(queue)
    assert queue.batches.refused_in_a_row()["count"] == 0


def test_what_cannot_be_trained_on_is_spent(queue: Journal) -> None:
    spent = {judged(queue), judged(queue)}
    batch = queue.batches.claim("t", 60)
    assert batch is not None
    queue.batches.refuse(batch, REFUSED, {}, Exclusion.FAILED_IN_TRAINING)
    assert {queue.turns.get(i).exclusion for i in spent} == {Exclusion.FAILED_IN_TRAINING}


# -- sessions that are set aside ------------------------------------------------------------------------------------


def some_session(aside: bool) -> str:
    return next(name for n in count() if is_set_aside(name := f"s{n}", 2, 0.5, 1) is aside)


@pytest.fixture
def sharing(queue: Journal) -> Journal:
    """A journal whose first session is past, and that sets half of the others aside."""
    gate = queue.store.config.gate.model_copy(update={"probe_share": 0.5, "probe_after": 1})
    queue.store.config = queue.store.config.model_copy(update={"gate": gate})
    answered(queue, session_id="the first")
    return queue


def test_a_session_set_aside_is_judged_shown_and_not_trained_on(sharing: Journal) -> None:
    aside, other = some_session(True), some_session(False)
    kept, sample = judged(sharing, session_id=aside), judged(sharing, session_id=other)
    assert sharing.turns.get(kept).exclusion is Exclusion.SET_ASIDE
    assert sharing.turns.get(sample).state is TurnState.READY
    shown = sharing.sessions.show(aside)
    assert shown is not None
    [turn] = shown["turns"]
    assert turn["exclusion"] == Exclusion.SET_ASIDE and turn["verdicts"][0]["score"] == 1
    assert sharing.status.figures()["excluded"] == {str(Exclusion.SET_ASIDE): 1}
    assert [s.turn_id for s in sharing.batches.gate_probes(8, exclude=[])] == [kept]


def test_a_branch_of_a_set_aside_session_is_set_aside_with_it(sharing: Journal) -> None:
    aside, other = some_session(True), some_session(False)
    judged(sharing, session_id=aside)
    branch = answered(sharing, session_id=other, branch_of=aside)
    waiting_for_judge(sharing, branch)
    sharing.verdicts.feedback(branch, 1, None)
    assert sharing.turns.get(branch).exclusion is Exclusion.SET_ASIDE


def test_the_first_sessions_of_a_home_are_all_learned_from(queue: Journal, home: Path) -> None:
    gate = load_config(overrides={"home": home}).gate
    queue.store.config = queue.store.config.model_copy(update={"gate": gate})
    aside = next(name for n in count() if is_set_aside(name := f"s{n}", 99, gate.probe_share, gate.probe_after))
    assert queue.turns.get(judged(queue, session_id=aside)).state is TurnState.READY


def test_which_sessions_are_set_aside_is_their_share_and_never_changes() -> None:
    aside = {n for n in range(5000) if is_set_aside(f"session-{n}", 13, 0.08, 12)}
    assert 0.06 < len(aside) / 5000 < 0.10
    assert is_set_aside("session-3", 13, 0.08, 12) is is_set_aside("session-3", 4000, 0.08, 12)
    assert min(aside) == 11 and not any(is_set_aside(f"session-{n}", 12, 0.08, 12) for n in aside)


def test_with_the_gate_off_nothing_is_set_aside(sharing: Journal) -> None:
    gate = sharing.store.config.gate.model_copy(update={"enabled": False})
    sharing.store.config = sharing.store.config.model_copy(update={"gate": gate})
    assert sharing.turns.get(judged(sharing, session_id=some_session(True))).state is TurnState.READY


def test_what_could_not_be_trained_on_is_no_wall_of_the_gates(queue: Journal) -> None:
    for _ in range(3):
        judged(queue), judged(queue)
        batch = queue.batches.claim("t", 60)
        assert batch is not None
        queue.batches.refuse(batch, {"accepted": False, "reasons": ["nan"]}, {}, Exclusion.FAILED_IN_TRAINING)
    assert queue.batches.refused_in_a_row()["count"] == 0
