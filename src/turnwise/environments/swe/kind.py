"""Repositories as a kind of environment: a terminal over a package with a fault, and its tests as the verifier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from turnwise.config import Config
from turnwise.environments.base import Action, Instructions, Task
from turnwise.environments.swe.suite import machine_python
from turnwise.environments.swe.task import swe_task
from turnwise.environments.terminal.environment import SUBMIT, TerminalEnvironment
from turnwise.environments.terminal.kind import TOOL, TerminalKind, run
from turnwise.sandbox.choice import Sandboxes
from turnwise.sandbox.limits import BoxLimits

_TASK = "You mend a fault in a Python package. Its repository is the working directory of a Linux shell. "
_END = (
    "You then see its output. The shell stays from one command to the next. There is no network. Look at the "
    f"sources, change the fewest lines that mend the fault, and when it is done give the command: {SUBMIT}"
)
SYSTEM = (
    f"{_TASK}In each answer give exactly one command: call the tool `run`, or write it in one ```bash block. {_END}"
)
SYSTEM_IN_BLOCKS = f"{_TASK}Answer with one command in a ```bash block. {_END}"
LIMITS = BoxLimits(seconds=60, memory_mb=1024)


class SweKind(TerminalKind):
    name = "swe"

    def check_machine(self, config: Config) -> None:
        super().check_machine(config)
        Sandboxes(config.environments).check_bubblewrap(f"the environment {self.name!r}")
        machine_python()

    def check_task(self, data: Mapping[str, object]) -> None:
        swe_task(data)

    def make(self, folder: Path, config: Config) -> TerminalEnvironment:
        apart = Sandboxes(config.environments.model_copy(update={"hosts": ()}))  # no index, whatever others may reach
        most_steps = config.streams.swe.max_steps or 20
        return TerminalEnvironment(folder, swe_task, LIMITS, most_steps, apart)

    def instructions(self, task: Task) -> Instructions:
        return Instructions(SYSTEM, (TOOL,))

    def instructions_in_blocks(self, task: Task) -> Instructions:
        return Instructions(SYSTEM_IN_BLOCKS, ())

    def oracle(self, task: Task) -> Sequence[Action]:
        return [run(command) for command in (*swe_task(task.data).mending(), SUBMIT)]


KIND = SweKind()
