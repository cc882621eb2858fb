"""The desktop as a kind of environment: what its tasks are, and how a model is told to act."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from turnwise.config import Config
from turnwise.environments.base import Action, Instructions, Task
from turnwise.environments.desktop.actions import SUBMIT, TOOLS
from turnwise.environments.desktop.desktop_task import desktop_task
from turnwise.environments.desktop.environment import DesktopEnvironment
from turnwise.environments.desktop.programs import check_programs
from turnwise.environments.desktop.screen import HEIGHT, WIDTH
from turnwise.environments.reading import called_in, fenced
from turnwise.errors import DataError
from turnwise.sandbox.choice import Sandboxes

SYSTEM = (
    f"You use a computer with a screen of {WIDTH} x {HEIGHT}, a mouse and a keyboard to do a task. You are shown the "
    "windows, and the elements of the window in front with their numbers and places; after each action you are told "
    "what changed. In each answer call exactly one tool. Your folder is the home folder. There is no network. "
    f"When the task is done, call `{SUBMIT}`."
)
IN_BLOCKS = 'Write the call in one ```json block, as {"name": "click", "arguments": {"element": 3}}. The tools are:'
BLOCKS = ("json", "tool", "")


class DesktopKind:
    name = "desktop"

    def check_machine(self, config: Config) -> None:
        Sandboxes(config.environments).check_bubblewrap(f"the environment {self.name!r}")
        check_programs()

    def check_task(self, data: Mapping[str, object]) -> None:
        desktop_task(data)

    def make(self, folder: Path, config: Config) -> DesktopEnvironment:
        stream = config.streams.desktop
        return DesktopEnvironment(folder, stream.max_steps or 30, stream.pictures)

    def instructions(self, task: Task) -> Instructions:
        return Instructions(SYSTEM, TOOLS)

    def instructions_in_blocks(self, task: Task) -> Instructions:
        described = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in TOOLS)
        return Instructions(f"{SYSTEM} {IN_BLOCKS}\n{described}", ())

    def in_block(self, action: Action) -> str:
        asked = [{"name": call.name, "arguments": dict(call.arguments)} for call in action.calls[:1]]
        block = f"```json\n{json.dumps(asked[0], ensure_ascii=False)}\n```" if asked else ""
        return f"{action.text}\n{block}".strip()

    def read(self, text: str) -> Action:
        return called_in(text if text.lstrip().startswith("{") else fenced(text, BLOCKS), text)

    def oracle(self, task: Task) -> Sequence[Action]:
        found = desktop_task(task.data).oracle
        if not found:
            raise DataError(f"no solution of the task {task.id} is known")
        return found


KIND = DesktopKind()
