"""What a batch may not do: stop learning for ever, spend turns that say nothing, or undo a rollback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.journal.test_queue import Clock, judged, open_journal, publish_next
from tests.support.rows import turn_row
from tests.support.versions import answered, new_turn, set_aside
from turnwise.errors import LeaseLost
from turnwise.journal import Answer, Journal
from turnwise.journal.queue.batches import BATCH_ATTEMPTS
from turnwise.messages import saying
from turnwise.types import Batch, Exclusion, FinishReason, PolicyVersion, TurnKind, TurnState


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(home: Path, clock: Clock) -> Iterator[Journal]:
    journal = open_journal(home, clock, min_batch=2, max_batch=2, max_age_s=100)
    yield journal
    journal.close()


def claim(queue: Journal) -> Batch:
    batch = queue.batches.claim("t", 60)
    assert batch is not None
    return batch


def die(queue: Journal, clock: Clock, batch: Batch) -> None:
    clock.now += 61


def fail(queue: Journal, clock: Clock, batch: Batch) -> None:
    queue.batches.failed(batch, "RuntimeError: out of memory")


@pytest.mark.parametrize("end", [die, fail])
def test_a_batch_that_ends_its_trainer_again_and_again_is_refused_and_the_next_one_proceeds(
    queue: Journal, clock: Clock, end: Callable[[Journal, Clock, Batch], None]
) -> None:
    bad = [judged(queue), judged(queue)]
    good = [judged(queue), judged(queue)]
    for _ in range(BATCH_ATTEMPTS):
        batch = claim(queue)
        assert [s.turn_id for s in batch.samples] == bad
        end(queue, clock, batch)
    batch = claim(queue)
    assert [s.turn_id for s in batch.samples] == good
    assert {queue.turns.get(t).exclusion for t in bad} == {Exclusion.FAILED_IN_TRAINING}
    reasons = {turn_row(queue, t).last_error for t in bad}
    assert all("ended 3 times before it was done" in r for r in reasons)
    assert end is die or all("out of memory" in r for r in reasons)
    assert queue.status.figures()["batches"] == {"open": 1, "refused": 1}


def test_a_stop_on_request_is_no_failure(queue: Journal) -> None:
    judged(queue), judged(queue)
    for _ in range(3 * BATCH_ATTEMPTS):
        queue.batches.suspend(claim(queue))
    assert claim(queue).id == 1


def test_a_turn_that_was_dropped_is_not_marked_as_trained(queue: Journal, clock: Clock) -> None:
    one, other = judged(queue), judged(queue)
    queue.batches.finish(claim(queue), PolicyVersion(1, 0, "versions/v1", clock()), {other: "no finite gradient"})
    assert queue.turns.get(one).state is TurnState.TRAINED
    assert queue.turns.get(other).exclusion is Exclusion.FAILED_IN_TRAINING
    assert turn_row(queue, other).last_error == "no finite gradient"
    version = queue.versions.get(1)
    assert version is not None and version.turn_ids == [one]


def test_a_rollback_lets_go_of_the_batch_that_would_be_built_on_what_is_left(queue: Journal, clock: Clock) -> None:
    for _ in range(2):
        judged(queue), judged(queue)
        publish_next(queue)
        clock.now += 1
    judged(queue), judged(queue)
    batch = claim(queue)
    assert batch.parent == 2
    queue.versions.serve(1)
    with pytest.raises(LeaseLost):
        queue.batches.finish(batch, PolicyVersion(3, 2, "versions/v3", clock()))
    assert queue.versions.latest() == 1
    again = claim(queue)
    assert again.parent == 1 and again.samples == batch.samples


def test_a_step_of_many_samples_starts_when_they_are_there(home: Path, clock: Clock) -> None:
    journal = open_journal(home, clock, min_batch=300, max_batch=300, max_age_s=1e6)
    for n in range(300):
        journal.verdicts.feedback(answered(journal, session_id=f"s{n}"), 1, None)
    assert len(claim(journal).samples) == 300
    journal.close()


def test_a_hint_without_a_place_in_the_prompt_is_no_signal(queue: Journal) -> None:
    homeless = judged(queue, 0, "Be brief.", hint_at=None)
    assert queue.turns.get(homeless).exclusion is Exclusion.NO_SIGNAL
    scored = judged(queue, 1, "Be brief.", hint_at=None)
    assert queue.turns.get(scored).state is TurnState.READY


# -- what the gate looks at -----------------------------------------------------------------------------------------


def probes(queue: Journal) -> list[str]:
    return [s.turn_id for s in queue.batches.gate_probes(9, exclude=[])]


def test_the_latest_verdict_on_a_turn_counts(queue: Journal) -> None:
    liked = judged(queue, 1)
    disliked = judged(queue, 1)
    queue.verdicts.feedback(disliked, -1, None)
    redeemed = judged(queue, -1)
    queue.verdicts.feedback(redeemed, 1, None)
    for turn_id in (liked, disliked, redeemed):
        set_aside(queue, turn_id)
    assert probes(queue) == [redeemed, liked]


def test_a_persons_verdict_counts_more_than_a_later_one_of_a_judge(queue: Journal) -> None:
    turn_id = judged(queue, 1)
    queue.verdicts.feedback(turn_id, -1, None)
    set_aside(queue, turn_id)
    with queue.store.transaction() as c:
        c.exec_driver_sql(
            "insert into verdicts (turn_id, judge, score, reason, votes, prompt_tokens, completion_tokens, seconds,"
            " created_at) select turn_id, 'model', 1, '', votes, 0, 0, 0, created_at + 1 from verdicts limit 1"
        )
    assert probes(queue) == []


def test_side_turns_aborted_and_superseded_ones_are_no_probes(queue: Journal) -> None:
    side = answered(queue, kind=TurnKind.SIDE)
    aborted = new_turn()
    queue.turns.begin(aborted)
    message = saying("assistant", "y")
    queue.turns.finish(aborted.id, Answer(message, None, FinishReason.ABORT, [7], [-0.5]))
    superseded = answered(queue)
    answered(queue, supersedes=superseded)
    for turn_id in (side, aborted.id, superseded):
        queue.verdicts.feedback(turn_id, 1, None)
    assert probes(queue) == []


def test_a_batch_comes_with_the_last_hints_of_earlier_ones_too_and_with_what_was_asked(
    queue: Journal, clock: Clock
) -> None:
    for hint in ("be brief", None, "use metric units", "call me Sam"):
        turn = judged(queue)
        clock.now += 1
        if hint:
            queue.verdicts.feedback(turn, -1, hint)
    first = claim(queue)
    assert [s.question for s in first.samples] == ["hi", "hi"]
    assert first.hints == ["be brief", "use metric units", "call me Sam"], "in the order in which they were given"
    number = queue.batches.reserve_version(first)
    queue.batches.finish(first, PolicyVersion(number, first.parent, f"versions/v{number}", queue.store.clock()))
    second = claim(queue)
    assert second.hints == first.hints, "those of turns that were trained on stay wishes"
    clock.now += 61
    queue.verdicts.feedback(first.samples[0].turn_id, -1, "in French")
    assert claim(queue).hints == [*second.hints, "in French"], "a late word on a turn that was trained is a wish, too"


@pytest.mark.parametrize(
    ("score", "hint", "question"),
    [(-1, None, None), (1, None, None), (0, "say it first", None), (0, None, "hi")],
)
def test_words_that_judge_the_answer_before_are_no_question(
    queue: Journal, score: int, hint: str | None, question: str | None
) -> None:
    first = answered(queue)
    queue.verdicts.feedback(first, score, hint)
    second = judged(queue, parent_id=first, answers=first)
    judged(queue)
    assert {s.turn_id: s.question for s in claim(queue).samples}[second] == question


def test_a_turn_with_tools_gives_no_question_to_answer_without_them(queue: Journal) -> None:
    tools = [{"type": "function", "function": {"name": "look"}}]
    judged(queue, tools=tools), judged(queue)
    assert [s.question for s in claim(queue).samples] == [None, "hi"]
