"""Questions with tools as a kind of environment: what its tasks are, and how a model is told to act."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from turnwise.config import Config
from turnwise.environments.base import Action, Call, Instructions, Task
from turnwise.environments.reading import fenced, function_tool
from turnwise.environments.tools.calls import WantedCalls
from turnwise.environments.tools.environment import ANSWER, PYTHON, ToolsEnvironment, has_python, tools_task
from turnwise.sandbox.choice import Sandboxes

RUN = function_tool(PYTHON, "Run Python code. Names stay for the next call; print what you want to see.", code="string")
GIVE = function_tool(ANSWER, "Give the final answer, and nothing but the answer: this ends the task.", value="string")
SYSTEM = (
    f"Solve the task. When you know the answer, give it with the tool `{ANSWER}`, without a unit or an explanation."
)
WITH_PYTHON = f"{SYSTEM} Compute with the tool `{PYTHON}`."
MARK = "Answer:"
BLOCKS = f"Solve the task. When you know the answer, end with one line `{MARK} ` and nothing but the answer behind it."
BLOCKS_WITH_PYTHON = (
    f"Solve the task with Python: answer with one ```{PYTHON} block that prints the result, and you see what it "
    f"prints. Then answer with one line `{MARK} ` and nothing but the result behind it."
)
CALLS = "Call the functions that the request asks for, all of them in one answer, and say nothing else."
CALLS_IN_BLOCKS = (
    "Say which calls of these functions the request asks for, as one ```json block with a list of all calls, each an "
    "object with `name` and `arguments`."
)


class ToolsKind:
    name = "tools"

    def check_machine(self, config: Config) -> None:
        Sandboxes(config.environments).check_bubblewrap(f"the environment {self.name!r}")

    def check_task(self, data: Mapping[str, object]) -> None:
        tools_task(data)
        has_python(data)

    def make(self, folder: Path, config: Config) -> ToolsEnvironment:
        return ToolsEnvironment(folder, most_steps=config.streams.tools.max_steps or 10)

    def instructions(self, task: Task) -> Instructions:
        wanted = tools_task(task.data)
        if isinstance(wanted, WantedCalls):
            return Instructions(CALLS, wanted.tools)
        return Instructions(WITH_PYTHON, (RUN, GIVE)) if has_python(task.data) else Instructions(SYSTEM, (GIVE,))

    def instructions_in_blocks(self, task: Task) -> Instructions:
        wanted = tools_task(task.data)
        if isinstance(wanted, WantedCalls):
            return Instructions(f"{CALLS_IN_BLOCKS}\n{json.dumps([each['function'] for each in wanted.tools])}", ())
        return Instructions(BLOCKS_WITH_PYTHON if has_python(task.data) else BLOCKS, ())

    def read(self, text: str) -> Action:
        """The answer where the last line gives one and no other line does; else the only block, of calls or Python."""
        lines = [line.strip() for line in text.strip().splitlines()]
        marked = [line for line in lines if line.startswith(MARK)]
        if len(marked) == 1 and lines[-1] == marked[0] and (value := marked[0].removeprefix(MARK).strip()):
            return answer(value, text)
        if wanted := _listed(fenced(text, ("json",))):
            return Action(wanted, text)
        code = fenced(text, (PYTHON, "py"))
        return Action((Call(PYTHON, {"code": code}),) if code else (), text)

    def in_block(self, action: Action) -> str:
        match action.calls:
            case (Call("python", {"code": str() as code}),):
                return f"```{PYTHON}\n{code}\n```"
            case (Call("answer", {"value": value}),):
                return f"{MARK} {value}"
            case ():
                return action.text
            case calls:
                listed = [{"name": call.name, "arguments": dict(call.arguments)} for call in calls]
                return f"```json\n{json.dumps(listed)}\n```"

    def oracle(self, task: Task) -> Sequence[Action]:
        wanted = tools_task(task.data)
        if isinstance(wanted, WantedCalls):
            return (Action(tuple(wanted.example())),)
        return (answer(wanted.answer),)


def _listed(block: str) -> tuple[Call, ...]:
    """The calls that a block lists; none where it is no list of calls."""
    try:
        found = json.loads(block) if block else []
    except (ValueError, RecursionError):
        return ()
    calls = []
    for each in found if isinstance(found, list) else []:
        match each:
            case {"name": str() as name, "arguments": dict() as arguments}:
                calls.append(Call(name, arguments))
            case _:
                return ()
    return tuple(calls)


def answer(value: str, text: str = "") -> Action:
    """The action that gives an answer."""
    return Action((Call(ANSWER, {"value": value}),), text)


KIND = ToolsKind()
