"""A terminal: one action is one shell command in the sandbox, and the verifier looks at the folder from outside.

The commands of an episode run in one shell, in a sandbox over the task's folder: its directory, its variables and what
it started stay. All of it is ended before the verifier looks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from turnwise.environments.base import Action, InfrastructureFailure, Observation, Task, TaskOutcome
from turnwise.environments.terminal.checks import Checked
from turnwise.environments.terminal.files_task import files_task
from turnwise.errors import DataError, FolderFault, SandboxError
from turnwise.sandbox.choice import Sandboxes
from turnwise.sandbox.folder import GuestFolder, delete_folder
from turnwise.sandbox.limits import INSIDE, Allowed, BoxLimits, Ran
from turnwise.sandbox.shell import Shell

SUBMIT = "submit"
"""The command that ends the episode."""
ONE = "Not run: give one command in an answer."
MOST_SHOWN = 4000
"""Characters of an output that the agent gets to see; the middle of a longer one is left out."""
MOST_OF_A_COMMAND = 32_000
"""Characters."""
STEP_LIMIT = "step limit"
MOST_UNREADABLE = 3
"""Actions in which no command was found, after which the episode ends."""
FORMAT = "No command was found in your answer. Give exactly one: call the tool, or write it in a ```bash block."
ANEW = f"(the shell ended with it; the next command begins in a new one, in {INSIDE}: files stay, variables do not)"
_PRINTED = "\n\t\r\x1b"


class FolderTask(Protocol):
    """A task over a folder. Both calls run outside of the sandbox; ``check`` must not follow what an agent left there
    out of the folder."""

    def set_up(self, folder: Path) -> None: ...
    def check(self, folder: Path) -> Checked: ...


class TerminalEnvironment:
    """Plays tasks in ``folder``, which it makes and deletes. ``make`` builds a task from its data."""

    def __init__(
        self,
        folder: Path,
        make: Callable[[Mapping[str, object]], FolderTask] = files_task,
        limits: BoxLimits | None = None,
        most_steps: int = 10,
        sandboxes: Sandboxes | None = None,
    ) -> None:
        self._folder, self._make, self._most_steps = folder, make, most_steps
        self._limits, self._sandboxes = limits or BoxLimits(), sandboxes or Sandboxes()
        self._task: FolderTask | None = None
        self._shell: Shell | None = None
        self._is_fresh = False

    def prepare(self) -> None:
        """Make the folder and start the shell. Raises InfrastructureFailure."""
        self.close()
        try:
            self._folder.mkdir(parents=True, mode=0o700)
            self._shell = self._sandboxes.shell(GuestFolder(self._folder), self._limits)
            self._shell.begin()
        except (OSError, SandboxError) as e:
            raise InfrastructureFailure(f"the sandbox cannot be made: {e}") from e
        self._is_fresh = True

    def is_fit(self) -> bool:
        """Whether the shell lives that was prepared, and no task began in it."""
        return self._is_fresh and self._shell is not None and self._shell.lives

    def reset(self, task: Task) -> Observation:
        """Write the task's files into an empty folder. Raises InfrastructureFailure."""
        if not self.is_fit():
            self.prepare()
        self._is_fresh = False
        try:
            self._task = self._make(task.data)
            self._task.set_up(self._folder)
        except (OSError, DataError, FolderFault, SandboxError) as e:
            self.close()
            raise InfrastructureFailure(f"the task {task.id} cannot be set up: {e}") from e
        self._steps = self._unreadable = self._in_a_row = 0
        self._ended = ""
        self._outcome: TaskOutcome | None = None
        return Observation(task.prompt)

    def step(self, action: Action) -> tuple[Observation, bool]:
        """Run the command of the first call. Raises InfrastructureFailure where the sandbox fails."""
        if self._task is None or self._outcome is not None or self._ended:
            raise InfrastructureFailure("there is no episode under way: reset begins one")
        command = _command(action)
        if command.strip() == SUBMIT:
            self._ended = "agent"
            return Observation("The task is handed in."), True
        self._steps += 1
        text = self._run(command)
        if not self._ended and self._steps >= self._most_steps:
            self._ended = STEP_LIMIT
        return Observation(text, (text, *(ONE for _ in action.calls[1:])) if action.calls else ()), bool(self._ended)

    def work(self, command: str, limits: BoxLimits, allowed: Allowed) -> Ran:
        """Let a program work in the folder. Raises InfrastructureFailure where the sandbox fails."""
        if self._task is None or self._outcome is not None or self._ended:
            raise InfrastructureFailure("there is no episode under way: reset begins one")
        self._ended = "program"
        self._end_shell()
        try:
            return self._sandboxes.run(GuestFolder(self._folder), command, limits, allowed)
        except (OSError, SandboxError) as e:
            raise InfrastructureFailure(f"the sandbox failed: {e}") from e

    def score(self) -> TaskOutcome:
        """Let the verifier look. Raises InfrastructureFailure where it crashes."""
        if self._task is None:
            raise InfrastructureFailure("there is no episode to score: reset begins one")
        if self._outcome is None:
            self._end_shell()
            try:
                checked = self._task.check(self._folder)
            except Exception as e:  # a verifier is anybody's code, and its fault is not the policy's
                raise InfrastructureFailure(f"the verifier crashed: {type(e).__name__}: {str(e)[:300]}") from e
            said = {"reason": checked.reason[:500], "steps": self._steps, "unreadable": self._unreadable}
            cut_off = "the limit of steps" if self._ended == STEP_LIMIT else None
            self._outcome = TaskOutcome(float(checked.passed), said | {"ended": self._ended or "agent"}, cut_off)
        return self._outcome

    def close(self) -> None:
        """End what lives inside and delete the folder."""
        self._task, self._is_fresh = None, False
        self._end_shell()
        try:
            delete_folder(self._folder)
        except (OSError, SandboxError) as e:
            raise InfrastructureFailure(f"the folder of an episode cannot be deleted: {e}") from e

    def _end_shell(self) -> None:
        """After this nothing lives that the agent started."""
        shell, self._shell = self._shell, None
        try:
            if shell is not None:
                shell.close()
        except (OSError, SandboxError) as e:
            raise InfrastructureFailure(f"the sandbox cannot be ended: {e}") from e

    def _run(self, command: str) -> str:
        fault = _fault(command)
        if fault:
            self._unreadable += 1
            self._in_a_row += 1
            if self._in_a_row >= MOST_UNREADABLE:
                self._ended = "format"
            return fault
        self._in_a_row = 0
        try:
            assert self._shell is not None
            return shown(self._shell.run(command), self._limits)
        except (OSError, SandboxError) as e:
            raise InfrastructureFailure(f"the sandbox failed: {e}") from e


def _command(action: Action) -> str:
    """The command of an action; empty where there is none in it."""
    first = action.calls[0] if action.calls else None
    command = first.arguments.get("command") if first is not None and first.name == "run" else None
    return command if isinstance(command, str) else ""


def _fault(command: str) -> str | None:
    """Why a text is no command; None where it is one."""
    if not command.strip():
        return FORMAT
    if len(command) > MOST_OF_A_COMMAND:
        return f"The command has more than {MOST_OF_A_COMMAND} characters; give a shorter one."
    try:
        command.encode()
    except UnicodeEncodeError:
        return "The command is no valid text; give it in UTF-8."
    return "A command has no NUL in it." if "\0" in command else None


def shown(ran: Ran, limits: BoxLimits) -> str:
    """What the agent is told of a command."""
    ends = {
        "time": f"it took longer than {limits.seconds:g} s; a program that waits for input or never ends does that",
        "memory": f"it took more than {limits.memory_mb} MB of memory",
        "processes": f"it had more than {limits.processes} processes",
        "output": f"it printed more than {limits.output_kb} kB; write into a file, or use head",
        "disk": f"the folder has more than {limits.disk_mb} MB or {limits.entries} files",
    }
    end = f"(ended: {ends[ran.stopped_by]})" if ran.stopped_by else f"(exit status {ran.status})"
    end += f"\n{ANEW}" if ran.restarted else ""
    return f"{readable(ran.output)}\n{end}".strip()


def readable(output: bytes) -> str:
    """An output as text of bounded length."""
    text = output.decode("utf-8", "replace")
    odd = sum(1 for sign in text if sign == "\ufffd" or (sign < " " and sign not in _PRINTED))
    if odd > len(text) // 10:
        return f"({len(output)} bytes of binary output, not shown)"
    text = "".join(sign if sign >= " " or sign in "\n\t" else "\ufffd" for sign in text)
    if len(text) <= MOST_SHOWN:
        return text.rstrip()
    half = MOST_SHOWN // 2
    return f"{text[:half]}\n(… {len(text) - 2 * half} characters are left out here …)\n{text[-half:].rstrip()}"
