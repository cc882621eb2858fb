"""Questions with tools as a kind of environment: what its tasks are, and how a model is told to act."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from turnwise.config import Config
from turnwise.environments.base import Action, Call, Instructions, Task
from turnwise.environments.reading import fenced, function_tool
from turnwise.environments.tools.answers import question
from turnwise.environments.tools.environment import ANSWER, PYTHON, ToolsEnvironment, has_python
from turnwise.errors import DataError
from turnwise.sandbox.bubblewrap import check_machine

RUN = function_tool(
    PYTHON, "Run Python code. Names stay for the next call; print what you want to see.", code="string"
)
GIVE = function_tool(ANSWER, "Give the final answer, and nothing but the answer: this ends the task.", value="string")
SYSTEM = f"Solve the task. When you know the answer, give it with the tool `{ANSWER}`, without a unit or an explanation."
WITH_PYTHON = f"{SYSTEM} Compute with the tool `{PYTHON}`."
MARK = "Answer:"
BLOCKS = f"Solve the task. When you know the answer, end with one line `{MARK} ` and nothing but the answer behind it."
BLOCKS_WITH_PYTHON = (
    f"{BLOCKS} Before that you can compute: answer with one ```{PYTHON} block, and you see what it prints."
)
_KNOWN = {"answer", "family", "seed", "python"}


class ToolsKind:
    name = "tools"

    def check_machine(self) -> None:
        check_machine()

    def check_task(self, data: Mapping[str, object]) -> None:
        if odd := sorted(set(data) - _KNOWN):
            raise DataError(f"a task of tools has {', '.join(sorted(_KNOWN))}, and no {odd[0]!r}")
        question(data)
        has_python(data)

    def make(self, folder: Path, config: Config) -> ToolsEnvironment:
        return ToolsEnvironment(folder, most_steps=config.streams.tools.max_steps or 10)

    def instructions(self, task: Task) -> Instructions:
        return Instructions(WITH_PYTHON, (RUN, GIVE)) if has_python(task.data) else Instructions(SYSTEM, (GIVE,))

    def instructions_in_blocks(self, task: Task) -> Instructions:
        return Instructions(BLOCKS_WITH_PYTHON if has_python(task.data) else BLOCKS, ())

    def read(self, text: str) -> Action:
        """The answer where the last line gives one and no other line does; else the only block of Python."""
        lines = [line.strip() for line in text.strip().splitlines()]
        marked = [line for line in lines if line.startswith(MARK)]
        if len(marked) == 1 and lines[-1] == marked[0] and (value := marked[0].removeprefix(MARK).strip()):
            return answer(value, text)
        code = fenced(text, (PYTHON, "py"))
        return Action((Call(PYTHON, {"code": code}),) if code else (), text)

    def in_block(self, action: Action) -> str:
        match action.calls:
            case (Call("python", {"code": str() as code}),):
                return f"```{PYTHON}\n{code}\n```"
            case (Call("answer", {"value": value}),):
                return f"{MARK} {value}"
            case _:
                return action.text

    def oracle(self, task: Task) -> Sequence[Action]:
        return (answer(question(task.data).answer),)


def answer(value: str, text: str = "") -> Action:
    """The action that gives an answer."""
    return Action((Call(ANSWER, {"value": value}),), text)


KIND = ToolsKind()
