"""Questions with tools: Python in the sandbox to find an answer with, and a tool that gives it.

The answer is checked outside, from the task alone; nothing that runs in the sandbox has a part in that. Where the
calls are the answer, none is carried out: the first answer ends the task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from turnwise.environments.base import Action, Call, InfrastructureFailure, Observation, Task, TaskOutcome
from turnwise.environments.terminal.environment import MOST_OF_A_COMMAND, MOST_UNREADABLE
from turnwise.environments.tools.answers import CheckedAnswer, question
from turnwise.environments.tools.calls import WantedCalls, wanted_calls
from turnwise.environments.tools.interpreter import LIMITS, Interpreter
from turnwise.errors import DataError, SandboxError
from turnwise.sandbox.folder import delete_folder
from turnwise.sandbox.limits import BoxLimits

PYTHON, ANSWER = "python", "answer"
MOST_CALLS = 8
"""Calls of one answer that are done."""
FORMAT = f"Nothing was asked for that can be done. Call a tool, or end with a line `{ANSWER.title()}: …`."
TOO_MANY = f"Not run: an answer has at most {MOST_CALLS} calls."
HANDED_IN = "The answer is handed in."
OVER = "Not run: the task is over."


class ToolsEnvironment:
    """Plays questions in ``folder``, which it makes and deletes."""

    def __init__(self, folder: Path, limits: BoxLimits = LIMITS, most_steps: int = 10) -> None:
        self._folder, self._limits, self._most_steps = folder, limits, most_steps
        self._task: CheckedAnswer | WantedCalls | None = None
        self._interpreter: Interpreter | None = None

    def reset(self, task: Task) -> Observation:
        self.close()
        try:
            self._task, self._has_python = tools_task(task.data), has_python(task.data)
            self._folder.mkdir(parents=True, mode=0o700)
        except (DataError, OSError) as e:
            raise InfrastructureFailure(f"the task {task.id} cannot be set up: {e}") from e
        self._steps = self._calls = self._unreadable = self._in_a_row = 0
        self._answer: str | None = None
        self._given: Sequence[Call] = ()
        self._ended = ""
        self._outcome: TaskOutcome | None = None
        return Observation(task.prompt)

    def step(self, action: Action) -> tuple[Observation, bool]:
        """Do the calls of an action, one after the other. Raises InfrastructureFailure where the sandbox fails."""
        if self._task is None or self._outcome is not None or self._ended:
            raise InfrastructureFailure("there is no episode under way: reset begins one")
        self._steps += 1
        if isinstance(self._task, WantedCalls):
            self._given, self._ended = action.calls, "agent"
            return Observation(HANDED_IN, tuple(HANDED_IN for _ in action.calls)), True
        done = [self._done(call) if at < MOST_CALLS else TOO_MANY for at, call in enumerate(action.calls)]
        if any(said is not None for said in done):
            self._in_a_row = 0
        else:
            self._unreadable += 1
            self._in_a_row += 1
        if not self._ended and self._in_a_row >= MOST_UNREADABLE:
            self._ended = "format"
        if not self._ended and self._steps >= self._most_steps:
            self._ended = "step limit"
        results = tuple(FORMAT if said is None else said for said in done)
        return Observation(results[0] if results else FORMAT, results), bool(self._ended)

    def score(self) -> TaskOutcome:
        """Check the answer. Raises InfrastructureFailure where the check itself fails."""
        if self._task is None:
            raise InfrastructureFailure("there is no episode to score: reset begins one")
        if self._outcome is None:
            try:
                is_right = self._is_right(self._task)
            except Exception as e:  # a scorer is others' code, and its fault is not the policy's
                raise InfrastructureFailure(f"the verifier crashed: {type(e).__name__}: {str(e)[:300]}") from e
            said = ", ".join(call.name for call in self._given) if self._answer is None else self._answer
            counts = {"steps": self._steps, "calls": self._calls, "unreadable": self._unreadable}
            told = {"answer": said[:200], "ended": self._ended or "agent", **counts}
            cut_off = "the limit of steps" if self._ended == "step limit" else None
            self._outcome = TaskOutcome(float(is_right), told, cut_off)
        return self._outcome

    def close(self) -> None:
        self._task = None
        try:
            if self._interpreter is not None:
                interpreter, self._interpreter = self._interpreter, None
                interpreter.close()
            delete_folder(self._folder)
        except (OSError, SandboxError) as e:
            raise InfrastructureFailure(f"the folder of an episode cannot be deleted: {e}") from e

    def _is_right(self, task: CheckedAnswer | WantedCalls) -> bool:
        if isinstance(task, WantedCalls):
            return task.are_right(self._given)
        return self._answer is not None and task.is_right(self._answer)

    def _done(self, call: Call) -> str | None:
        """What came of a call; None where it asks for nothing that can be done."""
        if self._ended:
            return OVER
        match call:
            case Call("answer", {"value": str() | int() | float() as value}) if not isinstance(value, bool):
                self._answer, self._ended = str(value), "agent"
                return HANDED_IN
            case Call("python", {"code": str() as code}) if self._has_python and _can_run(code):
                self._calls += 1
                return self._run(code)
            case _:
                return None

    def _run(self, code: str) -> str:
        try:
            if self._interpreter is None:
                self._interpreter = Interpreter(self._folder, self._limits)
            return self._interpreter.run(code)
        except (OSError, SandboxError) as e:
            raise InfrastructureFailure(f"the sandbox failed: {e}") from e


def tools_task(data: Mapping[str, object]) -> CheckedAnswer | WantedCalls:
    """What a task asks: for an answer, or for calls. Raises DataError."""
    if "functions" not in data:
        return question({key: value for key, value in data.items() if key != "python"})
    if odd := sorted(set(data) - {"functions", "calls"}):
        raise DataError(f"a task about calls has functions and calls, and no {odd[0]!r}")
    return wanted_calls(data)


def has_python(data: Mapping[str, object]) -> bool:
    """Whether a task has the interpreter. Raises DataError."""
    given = data.get("python", True)
    if not isinstance(given, bool):
        raise DataError("'python' says whether there is an interpreter: true or false")
    return given


def _can_run(code: str) -> bool:
    try:
        return bool(code.strip()) and len(code) <= MOST_OF_A_COMMAND and "\0" not in code and bool(code.encode())
    except UnicodeEncodeError:
        return False
