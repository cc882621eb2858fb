"""OpenEnv servers as a kind of environment: what its tasks are, and how a model is told to act."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from turnwise.config import Config
from turnwise.environments.base import Action, Call, Instructions, Task
from turnwise.environments.openenv.environment import OpenEnvEnvironment
from turnwise.environments.openenv.task import openenv_task
from turnwise.environments.reading import called_in, fenced
from turnwise.errors import DataError

SYSTEM = "You act in an environment. In each answer call exactly one tool; you then see what came of it."
SYSTEM_IN_BLOCKS = (
    "You act in an environment. Answer with exactly one ```json block, an object with `name` and `arguments` that "
    "calls one of these functions; you then see what came of it."
)


class OpenEnvKind:
    name = "openenv"

    def check_machine(self, config: Config) -> None:
        """Nothing of this machine is needed: the server is elsewhere, and is asked when an episode begins."""

    def check_task(self, data: Mapping[str, object]) -> None:
        openenv_task(data)

    def make(self, folder: Path, config: Config) -> OpenEnvEnvironment:
        return OpenEnvEnvironment(config.streams.openenv.max_steps or 30)

    def instructions(self, task: Task) -> Instructions:
        return Instructions(SYSTEM, openenv_task(task.data).offered())

    def read(self, text: str) -> Action:
        return called_in(fenced(text, ("json",)), text)

    def oracle(self, task: Task) -> Sequence[Action]:
        if not (known := openenv_task(task.data).oracle):
            raise DataError(f"the task {task.id} names no oracle; give it a list of actions")
        return [Action((call,)) for call in known]

    def instructions_in_blocks(self, task: Task) -> Instructions:
        functions = [tool["function"] for tool in openenv_task(task.data).offered()]
        return Instructions(f"{SYSTEM_IN_BLOCKS}\n{json.dumps(functions)}", ())

    def in_block(self, action: Action) -> str:
        return _block(action.calls[0]) if action.calls else action.text


def _block(call: Call) -> str:
    return f"```json\n{json.dumps({'name': call.name, 'arguments': dict(call.arguments)})}\n```"


KIND = OpenEnvKind()
