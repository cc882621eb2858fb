"""What an environment is: it is given a task, answers actions with observations, and says at the end what came of it.

Nothing here knows a model. An environment that cannot do its work raises InfrastructureFailure, which is no reward.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from turnwise.errors import TurnwiseError


class InfrastructureFailure(TurnwiseError):
    """The machine, not the policy, is why there is no outcome: the rollout is masked and gets no reward."""


@dataclass(frozen=True, slots=True)
class Task:
    """One task. ``data`` is what the environment makes it from; the agent is shown ``prompt`` alone."""

    id: str
    environment: str
    prompt: str
    data: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Observation:
    """What the agent gets to see after an action. ``text`` is of bounded length and untrusted."""

    text: str


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """What came of a task: ``reward`` (0 to 1 for verified tasks), and ``details`` for people."""

    reward: float
    details: Mapping[str, object]


class Environment(Protocol):
    """One episode at a time. Every call may raise InfrastructureFailure."""

    def reset(self, task: Task) -> Observation:
        """Begin a task; what an earlier one left is gone."""
        ...

    def step(self, action: str) -> tuple[Observation, bool]:
        """Do one action, and say whether the episode is over. An empty action is one that could not be read."""
        ...

    def score(self) -> TaskOutcome:
        """End the episode and judge it. Called again it says the same."""
        ...

    def close(self) -> None:
        """Give everything back. May be called at any time, and again."""
        ...
