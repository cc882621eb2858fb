"""Alarms for reward hacking are seen where a person and their monitoring look."""

from __future__ import annotations

import httpx
from sqlalchemy import insert
from typer.testing import CliRunner

from tests.conftest import Running
from tests.support.versions import new_turn
from turnwise.cli.main import app
from turnwise.journal import Answer, Journal, schema
from turnwise.messages import saying
from turnwise.types import FinishReason, Rollout


def judged(journal: Journal, number: int, score: int, ids: list[int], **changes: object) -> None:
    """A turn with this answer and this verdict of a judge's."""
    turn = new_turn(f"turn-{number:03d}", session_id=f"session-{number:03d}", **changes)
    journal.turns.begin(turn)
    logprobs = [-0.5] * len(ids)
    journal.turns.finish(turn.id, Answer(saying("assistant", "…"), None, FinishReason.STOP, ids, logprobs))
    cost = {"prompt_tokens": 0, "completion_tokens": 0, "seconds": 0.0, "created_at": 0.0}
    told = {"turn_id": turn.id, "judge": "model", "score": score, "reason": "", "votes": b"[]"}
    with journal.store.transaction() as c:
        c.execute(insert(schema.verdicts).values(told | cost))


def hacked(journal: Journal, pinned: bool = False) -> None:
    """Answers that repeat themselves at length, and are judged better for it."""
    for n in range(72):
        judged(journal, n, 1 if n % 3 == 0 else -1, list(range(n, n + 12)))
    for n in range(72, 120):
        judged(journal, n, 1, [7, 8, 9] * 16, pinned=pinned)


def test_they_stand_in_status_and_metrics(gateway: Running) -> None:
    hacked(gateway.journal)
    said = {alarm["sign"]: alarm for alarm in gateway.journal.status.figures()["alarms"]}
    assert set(said) == {"length", "repetition"}
    assert said["repetition"]["before"] == 0 and said["repetition"]["now"] > 0.9
    told = httpx.get(f"{gateway.url}/v1/status", headers=gateway.admin).json()
    assert {alarm["sign"] for alarm in told["alarms"]} == {"length", "repetition"}
    text = httpx.get(f"{gateway.url}/metrics", headers=gateway.admin).text
    assert 'turnwise_reward_alarm{sign="repetition"} 1.0' in text
    assert 'turnwise_reward_alarm{sign="entropy"} 0.0' in text
    shown = CliRunner().invoke(app, ["status", "--home", str(gateway.config.home)], env={"COLUMNS": "400"})
    assert "judges' verdicts rose from -0.33 to +1.00, but answers repeat themselves more" in shown.stdout


def test_answers_of_pinned_versions_are_not_the_policys(journal: Journal) -> None:
    hacked(journal, pinned=True)
    assert journal.status.figures()["alarms"] == []


def test_rollouts_are_not_the_persons_turns(journal: Journal) -> None:
    """Neither are they part of the history, nor do they push it out of what is read."""
    hacked(journal)
    for n in range(120, 120 + 900):
        judged(journal, n, -1, [7, 8], rollout=Rollout("web", "task", f"group-{n // 9}", 9))
    assert {alarm["sign"] for alarm in journal.status.figures()["alarms"]} == {"length", "repetition"}


def test_they_follow_what_is_judged(journal: Journal) -> None:
    hacked(journal)
    assert journal.status.figures()["alarms"]
    for n in range(120, 168):
        judged(journal, n, -1, [7, 8, 9] * 16)
    assert journal.status.figures()["alarms"] == [], "verdicts do not rise any more"
