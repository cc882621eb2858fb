"""Tasksets of `verifiers` as a kind of environment: what its tasks are, and how a model is told to act."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from turnwise.config import Config
from turnwise.environments.base import Action, Instructions, Task
from turnwise.environments.reading import called_in, fenced
from turnwise.environments.verified.child import verifiers_python
from turnwise.environments.verified.environment import VerifiersEnvironment
from turnwise.environments.verified.task import taskset_task
from turnwise.errors import DataError
from turnwise.sandbox.choice import Sandboxes

SYSTEM = "Solve the task. An answer without a call of a tool is your last."
IN_BLOCKS = (
    "To call one of these functions, answer with one ```json block, an object with `name` and `arguments`. An answer "
    "without one is your last."
)


class VerifiersKind:
    name = "verifiers"

    def check_machine(self, config: Config) -> None:
        Sandboxes(config.environments).check_bubblewrap(f"the environment {self.name!r}")
        verifiers_python()

    def check_task(self, data: Mapping[str, object]) -> None:
        taskset_task(data)

    def make(self, folder: Path, config: Config) -> VerifiersEnvironment:
        return VerifiersEnvironment(folder, config.streams.verifiers.max_steps or 10)

    def instructions(self, task: Task) -> Instructions:
        found = taskset_task(task.data)
        return Instructions(found.system or SYSTEM, found.tools)

    def instructions_in_blocks(self, task: Task) -> Instructions:
        found = taskset_task(task.data)
        functions = [tool["function"] for tool in found.tools]
        more = f"\n{IN_BLOCKS}\n{json.dumps(functions)}" if functions else ""
        return Instructions((found.system or SYSTEM) + more, ())

    def read(self, text: str) -> Action:
        return called_in(fenced(text, ("json",)), text)

    def in_block(self, action: Action) -> str:
        if not action.calls:
            return action.text
        call = action.calls[0]
        return f"```json\n{json.dumps({'name': call.name, 'arguments': dict(call.arguments)})}\n```"

    def oracle(self, task: Task) -> Sequence[Action]:
        answer = taskset_task(task.data).answer
        if answer is None:
            raise DataError(f"no answer of the task {task.id} is known; `turnwise tasks verifiers --answer` names it")
        return [Action((), answer)]


KIND = VerifiersKind()
