"""Repositories as a kind of environment: a terminal over a package with a fault, and its tests as the verifier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from turnwise.config import Config
from turnwise.environments.base import Action, Instructions, Task
from turnwise.environments.reading import fenced
from turnwise.environments.swe.suite import machine_python
from turnwise.environments.swe.task import swe_task
from turnwise.environments.terminal.environment import SUBMIT, TerminalEnvironment
from turnwise.environments.terminal.kind import SHELLS, TOOL, run
from turnwise.sandbox.box import BoxLimits, check_machine

SYSTEM = (
    "You mend a fault in a Python package. Its repository is the working directory of a Linux shell. In each answer give "
    "exactly one command: call the tool `run`, or write it in one ```bash block. You then see its output. Each command "
    "starts anew in the repository; files stay. There is no network. Look at the sources, change the fewest lines that "
    f"mend the fault, and when it is done give the command: {SUBMIT}"
)
LIMITS = BoxLimits(seconds=60, memory_mb=1024)


class SweKind:
    name = "swe"

    def check_machine(self) -> None:
        check_machine()
        machine_python()

    def check_task(self, data: Mapping[str, object]) -> None:
        swe_task(data)

    def make(self, folder: Path, config: Config) -> TerminalEnvironment:
        return TerminalEnvironment(folder, swe_task, LIMITS, most_steps=config.streams.swe.max_steps or 20)

    def instructions(self, task: Task) -> Instructions:
        return Instructions(SYSTEM, (TOOL,))

    def read(self, text: str) -> Action:
        return run(fenced(text, SHELLS), text)

    def oracle(self, task: Task) -> Sequence[Action]:
        return [run(command) for command in swe_task(task.data).mending()]


KIND = SweKind()
