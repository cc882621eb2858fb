"""Plays a task of a taskset: a conversation with the taskset's tools, scored by its rubric when the agent has ended.

The rubric and the tools run in the taskset's process, in the sandbox; the agent has no way to it but its calls.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from turnwise.environments.base import Action, InfrastructureFailure, Observation, Task, TaskOutcome
from turnwise.environments.terminal.environment import readable
from turnwise.environments.verified.child import LimitMet, TasksetProcess, TasksetRefused
from turnwise.environments.verified.task import TasksetTask, taskset_task
from turnwise.errors import ConfigError, DataError, SandboxError

MOST_CALLS = 8
"""Calls of one answer that are done."""
BEYOND = "The call took more time, memory or room than it may have; the episode has ended."
TOO_MANY = f"Not done: an answer has at most {MOST_CALLS} calls."


class VerifiersEnvironment:
    """``folder`` is made and deleted; ``most_steps`` are answers of an episode."""

    def __init__(self, folder: Path, most_steps: int) -> None:
        self._folder, self._most_steps = folder, most_steps
        self._process: TasksetProcess | None = None

    def reset(self, task: Task) -> Observation:
        self.close()
        try:
            self._task: TasksetTask = taskset_task(task.data)
            self._process = TasksetProcess(self._folder, self._task.folder)
            self._process.ask("begin", **self._task.asked())
        except (ConfigError, DataError, TasksetRefused) as e:
            self.close()
            raise InfrastructureFailure(f"the task {task.id} cannot be set up: {e}") from e
        self._messages: list[dict[str, Any]] = []
        if self._task.system:
            self._messages.append({"role": "system", "content": self._task.system})
        self._messages.append({"role": "user", "content": task.prompt})
        self._steps, self._ended, self._outcome = 0, "", None
        return Observation(task.prompt)

    def step(self, action: Action) -> tuple[Observation, bool]:
        """Do the calls of an answer; one without a call of a tool ends the episode."""
        if self._process is None or self._outcome is not None or self._ended:
            raise InfrastructureFailure("there is no episode under way: reset begins one")
        self._steps += 1
        calls = action.calls if self._task.tools else ()
        named = [(f"call_{self._steps}_{at}", call) for at, call in enumerate(calls)]
        told = [(at, call.name, json.dumps(dict(call.arguments))) for at, call in named]
        asked = [{"id": at, "name": name, "arguments": given} for at, name, given in told]
        more = {"tool_calls": asked} if asked else {}
        self._messages.append({"role": "assistant", "content": action.text} | more)
        results = tuple(self._done(at, number) for number, at in enumerate(named))
        if not named:
            self._ended = "agent"
        elif not self._ended and self._steps >= self._most_steps:
            self._ended = "step limit"
        return Observation(results[0] if results else "The answer is handed in.", results), bool(self._ended)

    def score(self) -> TaskOutcome:
        """Let the rubric score. Raises InfrastructureFailure where it fails."""
        if self._process is None:
            raise InfrastructureFailure("there is no episode to score: reset begins one")
        if self._outcome is None and self._ended == "tool limit":
            self._outcome = TaskOutcome(0.0, {"ended": self._ended, "steps": self._steps})
        if self._outcome is None:
            try:
                said = self._process.ask("score", messages=self._messages)
            except TasksetRefused as e:
                raise InfrastructureFailure(f"the rubric crashed: {e}") from e
            told = {"rewards": said["rewards"], "metrics": said["metrics"], "steps": self._steps}
            cut_off = "the limit of steps" if self._ended == "step limit" else None
            self._outcome = TaskOutcome(float(said["reward"]), {**told, "ended": self._ended or "agent"}, cut_off)
        return self._outcome

    def close(self) -> None:
        process, self._process = self._process, None
        try:
            if process is not None:
                process.close()
        except (OSError, SandboxError) as e:
            raise InfrastructureFailure(f"the folder of an episode cannot be deleted: {e}") from e

    def _done(self, named: tuple[str, Any], number: int) -> str:
        assert self._process is not None
        at, call = named
        text = TOO_MANY
        if self._ended:
            text = BEYOND
        elif number < MOST_CALLS:
            try:
                said = self._process.ask("call", name=call.name, arguments=dict(call.arguments))
            except TasksetRefused as e:
                raise InfrastructureFailure(f"a tool of the taskset cannot be called: {e}") from e
            except (
                LimitMet
            ):  # by what the agent asked for: a rollout that could mask itself so would never be a bad one
                self._ended, said = "tool limit", {"result": BEYOND}
            text = readable(str(said["result"]).encode(errors="replace"))
        self._messages.append({"role": "tool", "tool_call_id": at, "name": call.name, "content": text})
        return text
