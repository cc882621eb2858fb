"""What the journal carries between a turn, its judge and the trainer: the tools there, and how sure it was back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.journal.test_queue import Clock, open_journal, waiting_for_judge
from tests.support.versions import answered
from turnwise.journal import Journal
from turnwise.types import Exclusion, Verdict

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


@pytest.mark.parametrize("tools", [[WEATHER], None])
def test_the_judge_is_told_the_tools_that_the_turn_had(journal: Journal, tools: list[dict[str, object]] | None) -> None:
    turn_id = answered(journal, tools=tools)
    waiting_for_judge(journal, turn_id)
    [task] = journal.judging.claim("j", 1, 60)
    turn = journal.turns.get(turn_id)
    assert turn is not None and task.tools == turn.tools == tools


def reward_of(journal: Journal, verdict: Verdict) -> float:
    """What the trainer is handed for a turn with this verdict."""
    waiting_for_judge(journal, answered(journal))
    [task] = journal.judging.claim("j", 1, 60)
    journal.judging.record(task, verdict)
    batch = journal.batches.claim("t", 60)
    assert batch is not None
    [sample] = batch.samples
    return sample.reward


@pytest.mark.parametrize(
    ("score", "confidence", "reward"), [(1, 0.7, 0.7), (-1, 0.7, -0.7), (-1, 0.45, -0.45), (1, 1.0, 1.0)]
)
def test_the_reward_of_a_sample_is_its_score_times_how_sure_the_judge_was(
    home: Path, score: int, confidence: float, reward: float
) -> None:
    journal = open_journal(home, Clock(), min_batch=1, max_batch=2)
    assert reward_of(journal, Verdict(score, None, "model", confidence=confidence)) == pytest.approx(reward)
    journal.close()


def test_a_hint_without_a_score_carries_no_reward_however_sure_the_judge_was(home: Path) -> None:
    journal = open_journal(home, Clock(), min_batch=1, max_batch=2)
    assert reward_of(journal, Verdict(0, "Be brief, please.", "model", confidence=0.7)) == 0
    journal.close()


def test_a_verdict_of_no_confidence_teaches_nothing(journal: Journal) -> None:
    turn_id = answered(journal)
    waiting_for_judge(journal, turn_id)
    [task] = journal.judging.claim("j", 1, 60)
    journal.judging.record(task, Verdict(1, None, "model", confidence=0.0))
    turn = journal.turns.get(turn_id)
    assert turn is not None and turn.exclusion is Exclusion.NO_SIGNAL
