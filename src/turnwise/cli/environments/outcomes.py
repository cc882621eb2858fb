"""What came of rollouts: the judge of trajectories where a task has no verifier, and the line that is kept of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from turnwise.config import Config
    from turnwise.environments.base import Task, TaskOutcome
    from turnwise.environments.rollout import Ended
    from turnwise.trajectories.record import SavedTrajectory


def judge_of(settings: Config, tasks: list[Task]) -> Callable[[TaskOutcome], TaskOutcome] | None:
    """What asks the judge of `judge.trajectory`; None where no task needs one. Its outage is a failure that masks the
    rollout. Raises JudgeUnavailable where no judge can be asked at all."""
    from turnwise.environments.base import InfrastructureFailure
    from turnwise.judges.model import JudgeUnavailable
    from turnwise.judges.trajectory.asking import TrajectoryJudge

    if not any(task.data.get("judge") for task in tasks):
        return None
    judge = TrajectoryJudge.from_config(settings)

    def judged(outcome: TaskOutcome) -> TaskOutcome:
        assert outcome.trail is not None
        try:
            said = judge.judge(outcome.trail)
        except JudgeUnavailable as e:
            raise InfrastructureFailure(f"the judge: {e}") from e
        return replace(outcome, reward=said.score, details={**outcome.details, **said.details()})

    return judged


def saved_of(ended: Ended, actor: object, seconds: float = 0.0) -> SavedTrajectory:
    """All that is known of a rollout that ended. ``actor``: who played it, with a `transcript` where it kept one."""
    from turnwise.trajectories.record import SavedTrajectory

    task, transcript = ended.play.task, getattr(actor, "transcript", None)
    level = task.data.get("level")
    return SavedTrajectory(
        session=ended.play.session,
        task_id=task.id,
        environment=task.environment,
        prompt=task.prompt,
        reward=ended.reward,
        failure=ended.failure,
        cut_off=ended.cut_off,
        steps=ended.steps,
        verified=not task.data.get("judge"),
        level=level if isinstance(level, str) else None,
        details=dict(ended.details),
        messages=list(transcript.messages) if transcript is not None else [],
        spent=list(getattr(actor, "spent", [])),
        trail=ended.trail,
        seconds=seconds,
    )
