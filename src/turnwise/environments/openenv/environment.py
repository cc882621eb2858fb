"""Plays an episode at an OpenEnv server: calls of tools become its actions, and its rewards the outcome.

An action that the server refuses is told to the agent and counted; three in a row end the episode. A server that goes
away is a failure of the machine. Nothing of an episode is kept here but its rewards.
"""

from __future__ import annotations

import json

from turnwise.environments.base import Action, InfrastructureFailure, Observation, Task, TaskOutcome
from turnwise.environments.openenv.task import OpenEnvTask, openenv_task
from turnwise.environments.openenv.wire import ActionRefused, OpenEnvSession, Shown
from turnwise.environments.terminal.environment import MOST_UNREADABLE, readable
from turnwise.errors import DataError

FORMAT = "No action was found in your answer. Call the tool, once."
ONE = "Not done: give one action in an answer."


class OpenEnvEnvironment:
    """``most_steps``: actions of an episode, refused ones too."""

    def __init__(self, most_steps: int) -> None:
        self._most_steps = most_steps
        self._session: OpenEnvSession | None = None

    def reset(self, task: Task) -> Observation:
        self.close()
        try:
            self._task: OpenEnvTask = openenv_task(task.data)
        except DataError as e:
            raise InfrastructureFailure(f"the task {task.id} cannot be set up: {e}") from e
        self._steps = self._unreadable = self._in_a_row = 0
        self._rewards: list[float] = []
        self._ended, self._outcome = "", None
        self._session = OpenEnvSession(self._task.server)
        first = self._session.reset(self._task.reset)
        self._take(first)
        return Observation(f"{task.prompt}\n\n{seen(first)}")

    def step(self, action: Action) -> tuple[Observation, bool]:
        if self._session is None or self._outcome is not None or self._ended:
            raise InfrastructureFailure("there is no episode under way: reset begins one")
        self._steps += 1
        asked = self._task.action(action.calls[0]) if action.calls else None
        try:
            if asked is None:
                raise ActionRefused(FORMAT)
            shown = self._session.step(asked)
            self._in_a_row, text = 0, seen(shown)
            self._take(shown)
        except ActionRefused as e:
            self._unreadable += 1
            self._in_a_row += 1
            text = readable(str(e).encode(errors="replace"))
            if self._in_a_row >= MOST_UNREADABLE:
                self._ended = "format"
        if not self._ended and self._steps >= self._most_steps:
            self._ended = "step limit"
        results = (text, *(ONE for _ in action.calls[1:])) if action.calls else ()
        return Observation(text, results), bool(self._ended)

    def score(self) -> TaskOutcome:
        if self._session is None:
            raise InfrastructureFailure("there is no episode to score: reset begins one")
        if self._outcome is None:
            self._session.close()
            found = self._rewards[-1:] if self._task.last else self._rewards
            counts = {"steps": self._steps, "unreadable": self._unreadable, "ended": self._ended or "agent"}
            cut_off = "the limit of steps" if self._ended == "step limit" else None
            self._outcome = TaskOutcome(sum(found), {"rewards": self._rewards[-100:], **counts}, cut_off)
        return self._outcome

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def _take(self, shown: Shown) -> None:
        if shown.reward is not None:
            self._rewards.append(shown.reward)
        if shown.done:
            self._ended = "environment"


def seen(shown: Shown) -> str:
    """An observation as text of bounded length; without what is for programs (`metadata`) or empty."""
    told = {key: value for key, value in shown.observation.items() if key != "metadata" and value is not None}
    only = next(iter(told.values())) if len(told) == 1 else None
    return readable((only if isinstance(only, str) else json.dumps(told, ensure_ascii=False)).encode(errors="replace"))
