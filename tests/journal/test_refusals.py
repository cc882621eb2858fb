"""What the gate refuses goes back, and what it looks at is never trained on."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from sqlalchemy import select, update

from tests.journal.test_queue import Clock, judged, open_journal, publish_next, waiting_for_judge
from tests.support.rows import turn_row
from tests.support.versions import answered, set_aside
from turnwise.config import load_config
from turnwise.journal import Journal, schema
from turnwise.journal.deletion.forgetting import forget
from turnwise.journal.deletion.retention import prune
from turnwise.journal.packing import pack_json
from turnwise.journal.queue import batches
from turnwise.journal.queue.refusals import MOST_REFUSALS, wall
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


def leave_behind(journal: Journal) -> None:
    """Publish so many versions that every sample so far is stale."""
    with journal.store.transaction() as c:
        for n in range(1, journal.store.config.train.max_staleness + 2):
            known = {"metrics": pack_json({}), "gate": pack_json({}), "created_at": 1, "published_at": 1}
            c.execute(schema.versions.insert().values(number=n, parent=n - 1, path="x", serve_seq=n, **known))


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


def set_two_aside(journal: Journal) -> set[str]:
    """Have the first two samples refused until they are set aside."""
    first = {judged(journal), judged(journal)}
    refuse_next(journal)
    for _ in range(MOST_REFUSALS - 1):
        assert {journal.turns.get(i).state for i in first} == {TurnState.READY}
        judged(journal), judged(journal)
        assert first <= refuse_next(journal)
    return first


def loosen(journal: Journal) -> None:
    """The person changes a limit of the gate."""
    looser = journal.store.config.gate.model_copy(update={"max_step_kl": 2.0})
    journal.store.config = journal.store.config.model_copy(update={"gate": looser})


def test_a_sample_that_is_refused_again_and_again_is_set_aside_with_its_reason(queue: Journal) -> None:
    first = set_two_aside(queue)
    assert {queue.turns.get(i).exclusion for i in first} == {Exclusion.REFUSED_BY_GATE}
    assert queue.status.figures()["excluded"] == {str(Exclusion.REFUSED_BY_GATE): 2}
    assert queue.status.figures()["turns"]["ready"] == 2 * MOST_REFUSALS - 2, "the others were in fewer of them"
    [why] = {turn_row(queue, i).last_error for i in first}
    assert f"it was in {MOST_REFUSALS} batches that the gate refused; the last time: too far" in why


def test_the_person_is_told_well_before_a_sample_is_set_aside(queue: Journal) -> None:
    first = {judged(queue), judged(queue)}
    refuse_next(queue)
    while wall(queue.batches.refused_in_a_row()) is None:
        judged(queue), judged(queue)
        refuse_next(queue)
    for _ in range(2):
        judged(queue), judged(queue)
        refuse_next(queue)
    assert {queue.turns.get(i).state for i in first} == {TurnState.READY}


def test_another_configuration_brings_back_what_was_set_aside(queue: Journal) -> None:
    first = set_two_aside(queue)
    queue.batches.claim("t", 60)
    assert {queue.turns.get(i).state for i in first} == {TurnState.EXCLUDED}, "not under the same one"
    loosen(queue)
    batch = queue.batches.claim("t", 60)
    assert batch is not None and first <= ids(batch)
    queue.batches.refuse(batch, REFUSED, {})
    assert {queue.turns.get(i).state for i in first} == {TurnState.READY}, "its refusals are counted anew"


def test_what_was_set_aside_comes_back_in_steps(queue: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    first = set_two_aside(queue)
    monkeypatch.setattr(batches, "_MOST_EXCLUDED", 1)
    train = queue.store.config.train.model_copy(update={"min_batch": 20, "max_batch": 20})
    queue.store.config = queue.store.config.model_copy(update={"train": train})
    back = []
    for _ in range(3):
        assert queue.batches.claim("t", 60) is None
        back.append(sum(queue.turns.get(i).state is TurnState.READY for i in first))
    assert back == [1, 2, 2]


def test_what_was_set_aside_and_is_stale_by_now_is_not_brought_back(queue: Journal) -> None:
    first = set_two_aside(queue)
    leave_behind(queue)
    loosen(queue)
    queue.batches.claim("t", 60)
    assert {queue.turns.get(i).exclusion for i in first} == {Exclusion.STALE}


def test_the_persons_word_brings_back_what_was_set_aside(queue: Journal) -> None:
    one, _ = set_two_aside(queue)
    assert queue.verdicts.feedback(one, -1, None) == "taken as the turn's verdict"
    assert queue.turns.get(one).state is TurnState.READY


def test_what_was_refused_is_tried_again_where_new_samples_fill_every_batch(queue: Journal) -> None:
    refused = {judged(queue), judged(queue)}
    refuse_next(queue)
    new = [judged(queue) for _ in range(12)]
    batch = queue.batches.claim("t", 60)
    assert batch is not None and ids(batch) == refused | set(new[:4])


def test_the_oldest_of_what_was_refused_come_first_and_new_ones_have_half_of_the_places(queue: Journal) -> None:
    first = [judged(queue) for _ in range(6)]
    refuse_next(queue)
    tried = []
    for _ in range(3):
        for _ in range(6):
            judged(queue)
        batch = queue.batches.claim("t", 60)
        assert batch is not None and len(ids(batch)) == 6 and len(ids(batch) & set(first)) <= 3
        assert ids(batch) - set(first)
        tried.append(ids(batch))
        queue.batches.refuse(batch, REFUSED, {})
    assert all(set(first[:3]) < one for one in tried)
    assert len(set(map(frozenset, tried))) == 3, "no batch is made twice"


def test_turns_that_cannot_be_trained_on_do_not_go_back_with_a_refused_batch(queue: Journal) -> None:
    bad, good = judged(queue), judged(queue)
    batch = queue.batches.claim("t", 60)
    assert batch is not None
    queue.batches.refuse(batch, REFUSED, {}, dropped={bad: "its gradient is not finite"})
    assert queue.turns.get(bad).exclusion is Exclusion.FAILED_IN_TRAINING
    assert turn_row(queue, bad).last_error == "its gradient is not finite"
    assert queue.turns.get(good).state is TurnState.READY


def test_stale_samples_are_no_samples_that_wait(queue: Journal) -> None:
    for _ in range(3):
        judged(queue)
    assert queue.status.figures()["samples_ready"] == 3
    leave_behind(queue)
    assert queue.status.figures()["samples_ready"] == 0
    judged(queue, version=queue.versions.latest())
    assert queue.status.figures()["samples_ready"] == 1


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


def holding(journal: Journal) -> None:
    gate = journal.store.config.gate.model_copy(update={"unmeasured": "hold"})
    journal.store.config = journal.store.config.model_copy(update={"gate": gate})


def test_a_young_home_whose_gate_holds_waits_and_spends_nothing(queue: Journal) -> None:
    holding(queue)
    samples = {judged(queue), judged(queue)}
    assert queue.batches.claim("t", 60) is None
    said = queue.batches.waits_for()
    assert said is not None and 'set gate.unmeasured = "pass"' in said
    set_aside(queue, judged(queue))
    assert queue.batches.waits_for() is None
    batch = queue.batches.claim("t", 60)
    assert batch is not None and ids(batch) == samples


def test_a_gate_that_holds_lets_no_silent_turns_pile_up(queue: Journal) -> None:
    holding(queue)
    only = []
    for n in range(9):
        only.append(answered(queue, session_id=f"only {n}"))
        queue.sessions.close(f"only {n}", "idle")
    assert queue.batches.claim("t", 60) is None and queue.batches.waits_for() is not None
    states = [queue.turns.get(i).state for i in only]
    assert states == [TurnState.EXCLUDED] * 3 + [TurnState.READY] * 6


def test_what_was_only_held_is_no_fault_of_the_samples(queue: Journal) -> None:
    held = REFUSED | {"reasons": ["not measured: answer_drift (gate.unmeasured = hold)"], "held": True}
    first = {judged(queue), judged(queue)}
    for _ in range(MOST_REFUSALS + 1):
        batch = queue.batches.claim("t", 60)
        assert batch is not None and first <= ids(batch)
        queue.batches.refuse(batch, held, {})
        judged(queue), judged(queue)
    assert {queue.turns.get(i).state for i in first} == {TurnState.READY}
    assert wall(queue.batches.refused_in_a_row()) is not None, "but a person is told"


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


def test_a_branch_stays_set_aside_when_what_it_branched_off_from_is_forgotten(sharing: Journal) -> None:
    aside, other, third = some_session(True), some_session(False), "s of its own"
    judged(sharing, session_id=aside)
    answered(sharing, session_id=other, branch_of=aside)
    forget(sharing, aside)
    assert sharing.turns.get(judged(sharing, session_id=other)).exclusion is Exclusion.SET_ASIDE
    answered(sharing, session_id=third, branch_of=other)
    forget(sharing, other)
    assert sharing.turns.get(judged(sharing, session_id=third)).exclusion is Exclusion.SET_ASIDE
    forget(sharing, third)
    with sharing.store.reading() as c:
        names = c.execute(select(schema.meta.c.name)).scalars().all()
    assert not [name for name in names if other in name or third in name], "nothing of it is kept"


def test_a_branch_of_a_trained_session_is_no_probe_when_that_one_is_forgotten(sharing: Journal) -> None:
    """Its words were trained on, also where its own id would set it aside."""
    trained, branch, third = some_session(False), some_session(True), f"{some_session(True)} of its own"
    judged(sharing, session_id=trained)
    answered(sharing, session_id=branch, branch_of=trained)
    forget(sharing, trained)
    assert sharing.turns.get(judged(sharing, session_id=branch)).state is TurnState.READY
    answered(sharing, session_id=third, branch_of=branch)
    forget(sharing, branch)
    assert sharing.turns.get(judged(sharing, session_id=third)).state is TurnState.READY


def test_a_branch_of_an_early_session_is_no_probe_when_retention_deleted_that_one(sharing: Journal) -> None:
    """All is learned from the first sessions of a home; of a deleted one the id alone is known, and says otherwise."""
    gate = sharing.store.config.gate.model_copy(update={"probe_after": 2})
    sharing.store.config = sharing.store.config.model_copy(update={"gate": gate})
    early = some_session(True)
    assert sharing.turns.get(judged(sharing, session_id=early)).state is TurnState.READY
    answered(sharing, session_id="branch", branch_of=early)
    sharing.sessions.close(early, "idle")
    drop_session(sharing, early)
    assert sharing.turns.get(judged(sharing, session_id="branch")).state is TurnState.READY
    again = judged(sharing, session_id=early)
    assert sharing.turns.get(again).state is TurnState.READY, "a client goes on with it"


def test_a_branch_stays_set_aside_when_retention_deleted_what_it_branched_off_from(sharing: Journal) -> None:
    aside, other, third = some_session(True), some_session(False), f"{some_session(False)} of its own"
    answered(sharing, session_id=aside)
    answered(sharing, session_id=other, branch_of=aside)
    answered(sharing, session_id=third, branch_of=other)
    for name in (aside, other):
        sharing.sessions.close(name, "idle")
        drop_session(sharing, name)
    assert sharing.turns.get(judged(sharing, session_id=third)).exclusion is Exclusion.SET_ASIDE


def drop_session(journal: Journal, session_id: str) -> None:
    """Let its turns be the only old ones, and have retention delete them."""
    with journal.store.transaction() as c:
        of_it = schema.turns.c.session_id == session_id
        gone = {"created_at": 1.0, "state": TurnState.EXCLUDED, "exclusion": Exclusion.SUPERSEDED}
        c.execute(update(schema.turns).where(of_it).values(gone))
    prune(journal, 100.0, None)
    with journal.store.reading() as c:
        assert c.execute(select(schema.sessions.c.id).where(schema.sessions.c.id == session_id)).first() is None


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
