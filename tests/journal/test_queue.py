"""Leases: nothing lost, nothing done twice, whatever dies; with an injected clock."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from tests.support.versions import answered, set_aside
from turnwise.config import load_config
from turnwise.errors import LeaseLost
from turnwise.journal import Journal, schema
from turnwise.methods import OF_TURNS
from turnwise.types import Exclusion, PolicyVersion, TurnState, Verdict


class Clock:
    """A clock that only moves when it is told to, but never stands still between two looks."""

    now = 1_000_000.0

    def __call__(self) -> float:
        self.now += 1e-3
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def open_journal(home, clock: Clock, **train: object) -> Journal:
    settings = {"home": home, "gate.probe_share": 0.0} | {f"train.{k}": v for k, v in train.items()}
    return Journal.open(load_config(overrides=settings), clock)


@pytest.fixture
def queue(home, clock: Clock) -> Iterator[Journal]:
    journal = open_journal(home, clock, min_batch=2, max_batch=3, max_age_s=100)
    yield journal
    journal.close()


def judged(journal: Journal, score: int = 1, hint: str | None = None, **changes: object) -> str:
    """A turn that has been through the judge."""
    turn_id = answered(journal, **changes)
    waiting_for_judge(journal, turn_id)
    [task] = [t for t in journal.judging.claim("j", 100, 60) if t.turn_id == turn_id]
    journal.judging.record(task, Verdict(score, hint, "signals"))
    return turn_id


def waiting_for_judge(journal: Journal, turn_id: str) -> None:
    journal.verdicts.feedback(turn_id, None, "the reply")


def publish_next(journal: Journal) -> PolicyVersion:
    batch = journal.batches.claim("t", 60)
    assert batch is not None
    number = journal.batches.reserve_version(batch)
    version = PolicyVersion(number, batch.parent, f"versions/v{number}", journal.store.clock())
    journal.batches.finish(batch, version)
    return version


def test_a_verdict_makes_a_sample_or_an_exclusion(queue: Journal) -> None:
    expected = {(1, None): "ready", (-1, None): "ready", (0, "Be brief, please."): "ready", (0, None): "excluded"}
    for (score, hint), state in expected.items():
        assert queue.turns.get(judged(queue, score, hint)).state == state


@pytest.mark.parametrize(
    ("method", "score", "hint", "state"),
    [
        ("binary", 0, "Be brief.", "excluded"),
        ("binary", 1, None, "ready"),
        ("opd", 1, None, "excluded"),
        ("opd", 0, "Be brief.", "ready"),
        ("combined", 0, "Be brief.", "ready"),
        ("combined", 0, None, "excluded"),
    ],
)
def test_what_counts_as_a_signal_depends_on_the_method(home, clock, method, score, hint, state) -> None:
    journal = open_journal(home, clock, method=method)
    turn = journal.turns.get(judged(journal, score, hint))
    assert turn.state == state
    journal.close()


@pytest.mark.parametrize("method", OF_TURNS)
def test_the_only_turn_of_a_session_is_kept_without_a_reward(home, clock, method: str) -> None:
    journal = open_journal(home, clock, method=method, min_batch=1)
    only = answered(journal, session_id="single")
    pair = [answered(journal, session_id="pair") for _ in range(2)]
    journal.sessions.close("single", "test")
    journal.sessions.close("pair", "test")
    assert journal.turns.get(only).state is TurnState.READY
    assert [journal.turns.get(t).exclusion for t in pair] == [Exclusion.NO_NEXT_STATE] * 2
    clock.now += 1e6
    assert journal.batches.claim("t", 60) is None, "it begins no batch, however old it is"
    taught = judged(journal, hint="Be brief.")
    batch = journal.batches.claim("t", 60)
    assert batch is not None
    first, second = batch.samples
    assert (first.turn_id, first.reward, first.hint) == (only, 0.0, None)
    assert second.turn_id == taught
    journal.close()


def test_where_nothing_is_trained_no_turn_is_kept_without_a_signal(home, clock) -> None:
    journal = open_journal(home, clock, enabled=False)
    only = answered(journal, session_id="single")
    journal.sessions.close("single", "test")
    assert journal.turns.get(only).exclusion is Exclusion.NO_NEXT_STATE
    journal.close()


def silent(journal: Journal, n: int) -> str:
    only = answered(journal, session_id=f"silent-{n}")
    journal.sessions.close(f"silent-{n}", "test")
    return only


def test_a_batch_never_fills_with_turns_of_the_kl_term_alone(home, clock) -> None:
    """They come first, and there are more of them; half of the batch is theirs at most, and none of it is kept free."""
    journal = open_journal(home, clock, min_batch=3, max_batch=4)
    alone = [silent(journal, n) for n in range(4)]
    taught = [judged(journal) for _ in range(2)]
    assert journal.batches.claim("t", 60) is None, "two that teach something are not three"
    taught.append(judged(journal))
    batch = journal.batches.claim("t", 60)
    assert batch is not None
    assert [s.turn_id for s in batch.samples] == [alone[0], *taught]
    journal.batches.finish(batch, PolicyVersion(1, 0, "versions/v1", clock.now))
    taught = [judged(journal) for _ in range(5)]
    batch = journal.batches.claim("t", 60)
    assert batch is not None and [s.turn_id for s in batch.samples] == taught[:4]
    assert [journal.turns.get(t).state for t in alone[1:]] == [TurnState.READY] * 3
    journal.close()


def test_of_turns_of_the_kl_term_alone_a_batch_of_the_newest_waits(home, clock) -> None:
    journal = open_journal(home, clock, min_batch=2, max_batch=3)
    alone = [silent(journal, n) for n in range(5)]
    assert journal.batches.claim("t", 60) is None
    assert [journal.turns.get(t).exclusion for t in alone] == [Exclusion.NO_SIGNAL] * 2 + [None] * 3
    journal.verdicts.feedback(alone[0], 1, None)
    assert journal.turns.get(alone[0]).state is TurnState.READY, "the person's late word still counts"
    journal.close()


def test_a_signal_that_the_method_does_not_learn_from_is_none(home, clock) -> None:
    journal = open_journal(home, clock, method="combined", min_batch=1, w_opd=0.0)
    turn_id = judged(journal, 0, "Be brief.")
    assert journal.turns.get(turn_id).state is TurnState.READY
    assert journal.batches.claim("t", 60) is None
    journal.close()


def test_a_judge_that_dies_gives_the_turn_back_and_cannot_write_late(queue: Journal, clock: Clock) -> None:
    turn_id = answered(queue)
    waiting_for_judge(queue, turn_id)
    [late] = queue.judging.claim("one", 5, lease_s=10)
    assert queue.judging.claim("two", 5, lease_s=10) == []
    clock.now += 11
    [task] = queue.judging.claim("two", 5, lease_s=10)
    assert task.attempts == 2
    with pytest.raises(LeaseLost):
        queue.judging.record(late, Verdict(1, None, "signals"))
    queue.judging.renew(task, 100)
    clock.now += 50
    queue.judging.record(task, Verdict(-1, None, "signals"))
    assert len(queue.sessions.show("session-1")["turns"][0]["verdicts"]) == 1


def test_an_outage_is_a_retry_and_then_an_exclusion_never_a_zero(queue: Journal, clock: Clock) -> None:
    turn_id = answered(queue)
    waiting_for_judge(queue, turn_id)
    for attempt in (1, 2, 3):
        [task] = queue.judging.claim("j", 5, 10)
        assert task.attempts == attempt
        queue.judging.failed(task, "503", retry_in_s=5, max_attempts=3)
        assert queue.judging.claim("j", 5, 10) == [], "not before its time"
        clock.now += 6
    turn = queue.turns.get(turn_id)
    assert turn.exclusion is Exclusion.NO_VALID_VOTE
    assert queue.sessions.show("session-1")["turns"][0]["verdicts"] == []


def test_a_turn_whose_judges_die_is_given_up_where_it_is_claimed(queue: Journal, clock: Clock) -> None:
    """Nobody can say that such a try failed: the judge was killed, or holds its interpreter for ever."""
    turn_id = answered(queue)
    waiting_for_judge(queue, turn_id)
    limit = queue.store.config.judge.max_attempts
    for attempt in range(limit):
        [task] = queue.judging.claim(f"judge {attempt}", 5, lease_s=10)
        assert task.attempts == attempt + 1
        clock.now += 11
    assert queue.judging.claim("one more", 5, lease_s=10) == []
    turn = queue.turns.get(turn_id)
    assert turn is not None
    assert (turn.state, turn.exclusion) == (TurnState.EXCLUDED, Exclusion.NO_VALID_VOTE)
    with queue.store.reading() as c:
        error = c.execute(select(schema.turns.c.last_error).where(schema.turns.c.id == turn_id)).scalar_one()
    assert error == f"its judge ended {limit} times without a verdict"


def test_a_judge_that_is_asked_to_stop_counts_as_no_try(queue: Journal) -> None:
    turn_id = answered(queue)
    waiting_for_judge(queue, turn_id)
    for _ in range(2 * queue.store.config.judge.max_attempts):
        [task] = queue.judging.claim("j", 5, lease_s=10)
        assert task.attempts == 1
        queue.judging.release(task)
    with pytest.raises(LeaseLost):
        queue.judging.release(task)


def test_a_persons_word_settles_a_turn_that_a_judge_holds(queue: Journal) -> None:
    turn_id = answered(queue)
    waiting_for_judge(queue, turn_id)
    [task] = queue.judging.claim("j", 5, 10)
    queue.verdicts.feedback(turn_id, -1, "Answer in German.")
    with pytest.raises(LeaseLost):
        queue.judging.record(task, Verdict(1, None, "model"))
    assert queue.turns.get(turn_id).state is TurnState.READY


def test_what_a_batch_does_not_take_stays_ready(queue: Journal) -> None:
    ids = [judged(queue) for _ in range(5)]
    batch = queue.batches.claim("t", 60)
    assert batch is not None
    assert [s.turn_id for s in batch.samples] == ids[:3]
    assert queue.status.figures()["samples_ready"] == 2
    assert queue.batches.claim("other", 60) is None, "one batch at a time"
    queue.batches.finish(batch, PolicyVersion(1, 0, "versions/v1", 0.0))
    again = queue.batches.claim("t", 60)
    assert again is not None
    assert [s.turn_id for s in again.samples] == ids[3:]


def test_too_few_samples_wait_until_the_oldest_is_old_enough(queue: Journal, clock: Clock) -> None:
    judged(queue)
    assert queue.batches.claim("t", 60) is None
    clock.now += 101
    batch = queue.batches.claim("t", 60)
    assert batch is not None
    assert len(batch.samples) == 1


def test_a_dead_trainers_batch_is_resumed_exactly(queue: Journal, clock: Clock) -> None:
    for _ in range(3):
        judged(queue)
    first = queue.batches.claim("one", lease_s=10)
    assert first is not None
    judged(queue)
    assert queue.batches.claim("two", 10) is None, "its trainer may be alive"
    clock.now += 11
    second = queue.batches.claim("two", 10)
    assert second is not None
    assert (second.id, second.parent, second.samples) == (first.id, first.parent, first.samples)
    with pytest.raises(LeaseLost):
        queue.batches.finish(first, PolicyVersion(1, 0, "versions/v1", 0.0))
    assert queue.versions.latest() == 0
    queue.batches.suspend(second)
    third = queue.batches.claim("three", 10)
    assert third is not None
    assert third.samples == first.samples


def test_publishing_is_one_transaction(queue: Journal) -> None:
    ids = [judged(queue) for _ in range(2)]
    version = publish_next(queue)
    assert queue.versions.latest() == version.number == 1
    found = queue.versions.get(1)
    assert found is not None
    assert sorted(found.turn_ids) == sorted(ids)
    assert {queue.turns.get(i).state for i in ids} == {TurnState.TRAINED}
    assert queue.batches.claim("t", 60) is None


def test_refused_and_released_batches(queue: Journal) -> None:
    ids = [judged(queue) for _ in range(2)]
    batch = queue.batches.claim("t", 60)
    assert batch is not None
    queue.batches.release(batch)
    assert queue.status.figures()["samples_ready"] == 2
    batch = queue.batches.claim("t", 60)
    assert batch is not None
    queue.batches.refuse(batch, {"accepted": False}, {}, Exclusion.FAILED_IN_TRAINING)
    assert {queue.turns.get(i).exclusion for i in ids} == {Exclusion.FAILED_IN_TRAINING}
    assert queue.versions.latest() == 0


def test_a_sample_of_long_ago_is_stale(home, clock) -> None:
    journal = open_journal(home, clock, min_batch=1, max_batch=2, max_staleness=1)
    old = answered(journal, session_id="old")
    for _ in range(2):
        judged(journal, session_id="new")
        publish_next(journal)
    journal.verdicts.feedback(old, 1, None)
    assert journal.batches.claim("t", 60) is None
    assert journal.turns.get(old).exclusion is Exclusion.STALE
    journal.close()


def test_after_a_rollback_age_is_counted_along_parents(home, clock) -> None:
    """v4 is left for v1. A sample of v1 is new then; one of v4 is three updates away."""
    journal = open_journal(home, clock, min_batch=1, max_batch=2, max_staleness=2)
    for n in range(4):
        judged(journal, session_id="new", version=n)
        publish_next(journal)
    sampled = {n: answered(journal, session_id=f"of-{n}", version=n) for n in (4, 3, 1)}
    journal.versions.serve(1)
    for turn_id in sampled.values():
        journal.verdicts.feedback(turn_id, 1, None)
    batches = []
    while (batch := journal.batches.claim("t", 60)) is not None:
        batches += [(s.turn_id, s.version) for s in batch.samples]
        journal.batches.refuse(batch, {"accepted": False}, {})
    assert batches == [(sampled[3], 3), (sampled[1], 1)]
    assert journal.turns.get(sampled[4]).exclusion is Exclusion.STALE
    sibling = answered(journal, session_id="sibling", version=3)
    judged(journal, session_id="new", version=1)
    assert publish_next(journal).parent == 1
    journal.verdicts.feedback(sibling, 1, None)
    assert journal.batches.claim("t", 60) is None, "up to v1 and down again: three updates"
    assert journal.turns.get(sibling).exclusion is Exclusion.STALE
    journal.close()


def test_rolling_back_serves_an_earlier_version_and_numbers_go_on(queue: Journal, clock: Clock) -> None:
    for _ in range(2):
        judged(queue), judged(queue)
        publish_next(queue)
        clock.now += 1
    queue.versions.serve(1)
    assert queue.versions.latest() == 1
    judged(queue), judged(queue)
    clock.now += 1
    version = publish_next(queue)
    assert (version.number, version.parent) == (3, 1)


def test_gate_probes_are_well_judged_and_never_trained_on(queue: Journal) -> None:
    good = [judged(queue, 1) for _ in range(3)]
    for turn_id in (*good, judged(queue, -1)):
        set_aside(queue, turn_id)
    judged(queue, 1)  # ready: it will be trained on
    assert [s.turn_id for s in queue.batches.gate_probes(5, exclude=good[:1])] == [good[2], good[1]]


steps = st.lists(
    st.sampled_from(["serve", "react", "judge", "judge dies", "train", "train dies", "close", "wait"]),
    min_size=5,
    max_size=40,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps)
def test_whatever_happens_every_turn_is_somewhere_and_none_is_trained_twice(tmp_path_factory, plan: list[str]) -> None:
    clock = Clock()
    journal = open_journal(tmp_path_factory.mktemp("q"), clock, min_batch=1, max_batch=2)
    served: list[str] = []
    trained: list[str] = []
    for step in plan:
        clock.now += 1
        if step == "serve":
            served.append(answered(journal, session_id=f"s{len(served) % 3}"))
        elif step == "react" and served and journal.turns.get(served[-1]).state is TurnState.WAITING:
            waiting_for_judge(journal, served[-1])
        elif step.startswith("judge"):
            for task in journal.judging.claim("j", 2, 30):
                if step == "judge":
                    journal.judging.record(task, Verdict(1, None, "signals"))
        elif step.startswith("train"):
            batch = journal.batches.claim("t", 30)
            if batch is not None and step == "train":
                number = journal.batches.reserve_version(batch)
                journal.batches.finish(batch, PolicyVersion(number, batch.parent, f"versions/v{number}", clock.now))
                trained += [s.turn_id for s in batch.samples]
        elif step == "close":
            journal.sessions.close("s0", "test")
        else:
            clock.now += 60
    states = [journal.turns.get(t).state for t in served]
    assert len(served) == sum(journal.status.figures()["turns"].values())
    assert len(trained) == len(set(trained)) == states.count(TurnState.TRAINED)
    journal.close()
