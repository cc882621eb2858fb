"""The desktop as a kind of environment: what its tasks are, and how a model is told to act."""

from __future__ import annotations

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
from turnwise.sandbox.bubblewrap import check_machine

SYSTEM = (
    f"You use a computer with a screen of {WIDTH} x {HEIGHT}, a mouse and a keyboard to do a task. You are shown the "
    "windows, and the elements of the window in front with their numbers and places; after each action you are told "
    "what changed. In each answer call exactly one tool, or write the call in one ```json block as "
    '{"name": "click", "arguments": {"element": 3}}. Your folder is the home folder. '
    f"There is no network. When the task is done, call `{SUBMIT}`."
)
BLOCKS = ("json", "tool", "")


class DesktopKind:
    name = "desktop"

    def check_machine(self) -> None:
        check_machine()
        check_programs()

    def check_task(self, data: Mapping[str, object]) -> None:
        desktop_task(data)

    def make(self, folder: Path, config: Config) -> DesktopEnvironment:
        stream = config.streams.desktop
        return DesktopEnvironment(folder, stream.max_steps or 30, stream.pictures)

    def instructions(self, task: Task) -> Instructions:
        return Instructions(SYSTEM, TOOLS)

    def read(self, text: str) -> Action:
        return called_in(fenced(text, BLOCKS), text)

    def oracle(self, task: Task) -> Sequence[Action]:
        found = desktop_task(task.data).oracle
        if not found:
            raise DataError(f"no solution of the task {task.id} is known")
        return found


KIND = DesktopKind()
