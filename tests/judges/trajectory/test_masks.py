"""What is masked and what is a reward (OpenWebRL, A.4, "Invalid or unreliable samples"), from a failure to the journal.

The environment is a stand-in that fails where it is told to; host, rollouts, gateway, journal and the judge's HTTP are
the real ones.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Running
from tests.judges.trajectory.test_asking import PNG, Reply, endpoint, judge_at, refuses, says
from turnwise.cli.environments.outcomes import judge_of
from turnwise.environments.actors import ModelActor
from turnwise.environments.base import Action, InfrastructureFailure, Instructions, Observation, Task, TaskOutcome
from turnwise.environments.gateway_side import GatewayAt
from turnwise.environments.host import Host
from turnwise.environments.rollout import Play, Rollouts
from turnwise.judges.trajectory.asking import TrajectoryJudge
from turnwise.trajectories.reward import EndedSo, How, by_rule
from turnwise.trajectories.trail import ShownPage, Trail
from turnwise.types import MODEL_NAME, Exclusion

TASK = Task("t", "web", "Do it.", {"url": "http://127.0.0.1:1/", "judge": True})
YES = says("Verdict: SUCCESS")


def late(_: dict[str, Any]) -> tuple[int, Any]:
    time.sleep(0.6)
    return YES


@dataclass(frozen=True)
class Row:
    """What fails, or how the episode ends; and what the judge replies. ``masked``: how the failure that is kept begins;
    None: there is a reward."""

    masked: str | None
    reward: float | None = None
    fails_at: str = ""
    failure: str = ""
    how: How = "done"
    well_formed: bool = True
    reply: Reply = lambda _: YES
    settings: tuple[tuple[str, Any], ...] = ()
    more: str = ""
    """What the episode's first step shows, which goes on then."""
    aborted: bool = False
    """Whether the policy's engine breaks off in the middle of its answer."""


TABLE = {
    # "If reward evaluation fails because of judge timeout …"
    "the judge takes too long": Row("the judge: ", reply=late, settings=(("timeout_s", 0.2),)),
    "the judge is away": Row("the judge: ", reply=lambda _: refuses("come again", 503)),
    "the judge sends no verdict's message": Row("the judge: ", reply=lambda _: (200, {"choices": []})),
    "the judge must see and cannot": Row(
        "the judge: ", reply=lambda _: refuses("no image input"), settings=(("pictures", "require"),)
    ),
    # "… or infrastructure-related rollout failures": the sample is masked
    "the site does not open": Row("the site ", fails_at="reset", failure="the site http://x/ does not open"),
    "the browser crashes": Row("the browser crashed", fails_at="step", failure="the browser crashed"),
    "the browser fails at its end": Row("the browser failed", fails_at="score", failure="the browser failed (look)"),
    "an error that nobody foresaw": Row("ValueError: odd", fails_at="step", failure="ValueError"),
    "a generation is aborted": Row("the gateway cannot be asked", aborted=True),
    # "malformed tool calls": -1 where they end it, else the format's 0; the judge is not asked
    "repeated format errors": Row(None, -1.0, how="format", well_formed=False),
    "one answer out of form": Row(None, 0.0, well_formed=False),
    # "context-length truncation […] or exhausting the maximum number of browser steps": J = 0 by rule
    "the limit of steps": Row(None, 0.0, how="steps"),
    "a full context": Row(None, 0.0, more="word " * 40_000),
    "an agent that stops": Row(None, 0.0, how="stopped"),
    # a judge that was reached has judged, also with words that are no verdict
    "the judge says SUCCESS": Row(None, 1.0),
    "the judge says NOT SUCCESS": Row(None, 0.0, reply=lambda _: says("NOT SUCCESS")),
    "the judge gives no verdict": Row(None, 0.0, reply=lambda _: says("Hard to tell.")),
}
"""A.4 also sets J = 0 after "environment errors" and aborted generations. Here both are failures of the machine and are
masked: as a 0 the policy would be taught that what it did was wrong."""


class Staged:
    """An episode of one step that ends, or fails, as its row says."""

    def __init__(self, row: Row) -> None:
        self._row = row

    def reset(self, task: Task) -> Observation:
        self._fail("reset")
        return Observation("Go.")

    def step(self, action: Action) -> tuple[Observation, bool]:
        self._fail("step")
        return Observation(self._row.more), not self._row.more

    def score(self) -> TaskOutcome:
        self._fail("score")
        end = EndedSo(self._row.how, self._row.well_formed, "42")
        ruled = by_rule(end)
        trail = Trail("Do it.", (), (ShownPage("page", PNG),), "42")
        return TaskOutcome(ruled or 0.0, {}, None, trail, ruled is None)

    def close(self) -> None:
        pass

    def _fail(self, where: str) -> None:
        if self._row.fails_at == where:
            raise ValueError("odd") if self._row.failure == "ValueError" else InfrastructureFailure(self._row.failure)


@pytest.mark.parametrize("what", TABLE)
def test_a_line_of_the_table(what: str, gateway: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = TABLE[what]
    gateway.stub.die_after = 1 if row.aborted else None
    with endpoint(row.reply) as (url, bodies):
        judge = judge_at(url, **dict(row.settings))
        monkeypatch.setattr(TrajectoryJudge, "from_config", lambda config: judge)
        at = GatewayAt(gateway.url, gateway.token, gateway.person["Authorization"].removeprefix("Bearer "))
        leases = gateway.journal.environments

        def read(text: str) -> Action:
            return Action((), text)

        def actor(play: Play) -> ModelActor:
            where = f"{gateway.url}/s/{play.session}/v1"
            return ModelActor(where, gateway.token, MODEL_NAME, play.headers, Instructions("Act.", ()), read)

        host = Host(leases, lambda kind, place: Staged(row), tmp_path / "at", 1)
        judged = judge_of(gateway.config, [TASK])
        ended = Rollouts(host, leases, at, actor, judge=judged).play(Play("r", TASK, 0, 1))
    assert ended.note is None, "the gateway has taken it"
    with gateway.journal.store.reading() as c:
        kept = c.exec_driver_sql("SELECT outcome, failure FROM trajectories").all()
        turns = c.exec_driver_sql("SELECT exclusion FROM turns").all()
    assert [tuple(each) for each in kept] == [(ended.reward, ended.failure)]
    assert ended.reward == row.reward
    if row.masked is None:
        assert ended.failure is None
        assert turns and all(each[0] != Exclusion.INFRASTRUCTURE for each in turns)
    else:
        assert ended.failure is not None and ended.failure.startswith(row.masked)
        assert all(each[0] == Exclusion.INFRASTRUCTURE for each in turns), "it is in no update"
        assert bool(turns) == (row.fails_at != "reset")
    asked = not (row.fails_at or row.more or row.aborted) and row.how == "done" and row.well_formed
    assert bool(bodies) == asked, "the judge is asked where A.4 asks it, and nowhere else"
