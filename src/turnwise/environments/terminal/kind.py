"""The terminal as a kind of environment: what its tasks are, and how a model is told to act."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from turnwise.config import Config
from turnwise.environments.base import Action, Call, Instructions, Task
from turnwise.environments.reading import fenced, function_tool
from turnwise.environments.terminal.environment import SUBMIT, TerminalEnvironment
from turnwise.environments.terminal.files_task import FilesTask, files_task
from turnwise.environments.terminal.harbor.task import HarborTask, harbor_task
from turnwise.errors import DataError
from turnwise.sandbox.choice import Sandboxes

SYSTEM = (
    "You solve a task in a Linux shell. Your folder is the working directory. In each answer give exactly one command: "
    "call the tool `run`, or write it in one ```bash block. You then see its output. The shell stays from one command "
    "to the next, with its directory and variables. There is no network. When the task is done, give the command: "
    f"{SUBMIT}"
)
TOOL = function_tool("run", f"Run a shell command in the folder; `{SUBMIT}` ends the task.", command="string")
SYSTEM_IN_BLOCKS = f"Solve the task with one shell command an answer, in a ```bash block. The command {SUBMIT} ends it."
SHELLS = ("bash", "sh", "shell")


class TerminalKind:
    name = "terminal"

    def check_machine(self, config: Config) -> None:
        Sandboxes(config.environments).check()

    def check_task(self, data: Mapping[str, object]) -> None:
        task_of(data)

    def make(self, folder: Path, config: Config) -> TerminalEnvironment:
        most_steps = config.streams.terminal.max_steps or 10
        sandboxes = Sandboxes(config.environments)
        made = partial(task_of, sandboxes=sandboxes)
        return TerminalEnvironment(folder, made, most_steps=most_steps, sandboxes=sandboxes)

    def instructions(self, task: Task) -> Instructions:
        return Instructions(SYSTEM, (TOOL,))

    def read(self, text: str) -> Action:
        return run(fenced(text, SHELLS), text)

    def oracle(self, task: Task) -> Sequence[Action]:
        if not (known := task_of(task.data).oracle):
            raise DataError(
                f"the task {task.id} names no commands that solve it; give it an oracle, or solution/solve.sh"
            )
        return [run(command) for command in (*known, SUBMIT)]

    def instructions_in_blocks(self, task: Task) -> Instructions:
        return Instructions(SYSTEM_IN_BLOCKS, ())

    def in_block(self, action: Action) -> str:
        return f"```bash\n{action.calls[0].arguments['command']}\n```" if action.calls else action.text


def task_of(data: Mapping[str, object], sandboxes: Sandboxes | None = None) -> FilesTask | HarborTask:
    """The task that ``data`` describes, in the one way or the other. Raises DataError."""
    return harbor_task(data, sandboxes) if "harbor" in data else files_task(data, sandboxes)


def run(command: str, text: str = "") -> Action:
    """The action that runs a command; none in it where there is none."""
    return Action((Call("run", {"command": command}),) if command else (), text)


KIND = TerminalKind()
