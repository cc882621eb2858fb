"""A desktop: one action is one thing that a hand does, and the agent is told what changed by it.

The verifier looks at the folder from outside, when no program of the episode lives any more.
"""

from __future__ import annotations

import time
from pathlib import Path

from turnwise.environments.base import Action, InfrastructureFailure, Observation, Task, TaskOutcome
from turnwise.environments.desktop.actions import Deed, NoCall, NotThere, deed
from turnwise.environments.desktop.desktop_task import DesktopTask, desktop_task
from turnwise.environments.desktop.programs import PROGRAMS
from turnwise.environments.desktop.screen import HEIGHT, WIDTH, png
from turnwise.environments.desktop.session import DeskSession, SessionEnded
from turnwise.environments.desktop.tree import Numbers, Tree, changed, is_new_view, read_tree, written
from turnwise.errors import DataError, FolderFault, SandboxError
from turnwise.sandbox.folder import delete_folder

ONE = "Not done: give one action in an answer."
FORMAT = "No action was found in your answer. Give exactly one: call a tool."
MOST_UNREADABLE = 3
"""Actions that are none, one after the other, after which the episode ends."""
FIRST_S = 0.25
QUIET_S = 0.15
"""So long must a screen stay as it is before it is looked at, after a first wait."""
RESTLESS_S = 4.0
"""Longest wait for that."""
OPENS_S = 90.0
"""Longest wait for a program's window."""
BEHIND_S = 3.0
"""Longest wait until a new window is in front."""
LOOKS = 3
_Fault = (OSError, SandboxError, FolderFault)


class DesktopEnvironment:
    """Plays tasks in ``folder``, which it makes and deletes. ``pictures``: whether observations have a screenshot."""

    def __init__(self, folder: Path, most_steps: int = 30, pictures: bool = False) -> None:
        self._folder, self._most_steps, self._pictures = folder, most_steps, pictures
        self._session: DeskSession | None = None
        self._is_fresh = False
        """Whether the session was prepared and has seen no task yet."""
        self._task: DesktopTask | None = None

    @property
    def _files(self) -> Path:
        return self._folder / "files"

    def prepare(self) -> None:
        """Start the display and the session, which takes longest and needs no task. Raises InfrastructureFailure."""
        self.close()
        try:
            self._files.mkdir(parents=True, mode=0o700)
            self._session = DeskSession(self._folder, self._files)
        except (*_Fault, SessionEnded) as e:
            raise InfrastructureFailure(f"no desktop can be made: {e}") from e
        self._is_fresh = True

    def is_fit(self) -> bool:
        """Whether a desktop that was prepared still lives."""
        try:
            if self._session is not None:
                self._session.check()
        except (InfrastructureFailure, SessionEnded):
            return False
        return self._session is not None

    def reset(self, task: Task) -> Observation:
        """Begin on a new display, with the programs that the task says. Raises InfrastructureFailure."""
        if not self._is_fresh or not self.is_fit():
            self.prepare()
        self._is_fresh = False
        self._tree, self._numbers, self._outcome = Tree(), Numbers(), None
        self._steps = self._unreadable = self._in_a_row = 0
        self._ended = ""
        try:
            assert self._session is not None
            self._task = desktop_task(task.data)
            self._task.set_up(self._files)
            for program, way in self._task.opens:
                if (fault := self._open(self._session, program, way)) is not None:
                    raise InfrastructureFailure(f"the task {task.id} cannot begin: {fault}")
            self._look(self._session)
        except (*_Fault, DataError, SessionEnded) as e:
            raise InfrastructureFailure(f"the task {task.id} cannot be set up: {e}") from e
        return self._seen(f"{task.prompt}\n\n{written(self._tree, self._numbers)}")

    def step(self, action: Action) -> tuple[Observation, bool]:
        """Do the first call. Raises InfrastructureFailure where the display or a sandbox fails."""
        if self._session is None or self._outcome is not None or self._ended:
            raise InfrastructureFailure("there is no episode under way: reset begins one")
        self._steps += 1
        try:
            text = self._step(self._session, action)
        except SessionEnded as e:
            self._ended, text = "session", f"The desktop is gone: {e}. The task ends here."
        except _Fault as e:
            raise InfrastructureFailure(f"the desktop failed: {e}") from e
        if not self._ended and self._steps >= self._most_steps:
            self._ended = "step limit"
        results = (text, *(ONE for _ in action.calls[1:])) if action.calls else ()
        return self._seen(text, results), bool(self._ended)

    def score(self) -> TaskOutcome:
        """End all programs and let the verifier look. Raises InfrastructureFailure where it crashes."""
        if self._task is None or self._session is None:
            raise InfrastructureFailure("there is no episode to score: reset begins one")
        if self._outcome is None:
            front = self._tree.active.title if self._tree.active is not None else ""
            try:
                self._session.end_programs()
                checked = self._task.check(self._files, front)
            except Exception as e:  # what it looks at is anybody's, and its fault is not the policy's
                raise InfrastructureFailure(f"the verifier crashed: {type(e).__name__}: {str(e)[:300]}") from e
            said = {"reason": checked.reason[:500], "steps": self._steps, "unreadable": self._unreadable}
            cut_off = "the limit of steps" if self._ended == "step limit" else None
            self._outcome = TaskOutcome(float(checked.passed), said | {"ended": self._ended or "agent"}, cut_off)
        return self._outcome

    def close(self) -> None:
        """End the display and all programs, and delete the folder."""
        session, self._session, self._task, self._is_fresh = self._session, None, None, False
        try:
            if session is not None:
                session.close()
            delete_folder(self._folder)
        except _Fault as e:
            raise InfrastructureFailure(f"the desktop of an episode cannot be taken away: {e}") from e

    def _step(self, session: DeskSession, action: Action) -> str:
        try:
            if not action.calls:
                raise NoCall(FORMAT)
            asked = deed(action.calls[0], self._tree, self._numbers)
        except NotThere as e:
            return str(e)
        except NoCall as e:
            self._unreadable += 1
            self._in_a_row += 1
            self._ended = "format" if self._in_a_row >= MOST_UNREADABLE else ""
            return str(e)
        self._in_a_row = 0
        if asked.submits:
            self._ended = "agent"
            return "The task is handed in."
        return self._done(session, asked)

    def _done(self, session: DeskSession, asked: Deed) -> str:
        """Do what is asked for, and say what changed."""
        before, frame = self._tree, session.frame()
        fault = session.hand(asked.hand) if asked.hand else None
        time.sleep(asked.seconds)
        if asked.opens is not None:
            fault = self._open(session, asked.opens, None)
        self._look(session)
        said = [f"It failed: {fault}"] if fault is not None else []
        if difference := changed(before, self._tree, self._numbers):
            whole = is_new_view(before, self._tree)
            said += [f"The screen now:\n{written(self._tree, self._numbers)}" if whole else difference]
        elif fault is None:
            same = session.frame() == frame
            said.append("Nothing changed." if same else "The picture changed, but no element of the list.")
        return "\n".join(said)

    def _open(self, session: DeskSession, program: str, way: str | None) -> str | None:
        """Start a program and wait for its window. Says so where none came."""
        self._take(session, deep=False)
        known = {window.id for window in self._tree.windows}
        session.start(PROGRAMS[program].line(way))
        until = time.monotonic() + OPENS_S
        while (now := time.monotonic()) < until:
            self._take(session, deep=False)
            new = [window for window in self._tree.windows if window.id not in known]
            if any(window.active for window in new):
                return None
            until = min(until, now + BEHIND_S) if new else until
            time.sleep(0.2)
        if any(window.id not in known for window in self._tree.windows):
            return None
        return f"{PROGRAMS[program].about} showed no window within {OPENS_S:.0f} s"

    def _look(self, session: DeskSession) -> None:
        """Look when the screen is quiet; again where it moved in the meantime, since a program answers when it has
        done what it was told before."""
        time.sleep(FIRST_S)
        for _ in range(LOOKS):
            frame = _quiet(session)
            self._take(session)
            if session.frame() == frame and not self._tree.silent:
                return

    def _take(self, session: DeskSession, deep: bool = True) -> None:
        looked = session.look(deep)
        if "fault" in looked:
            raise SessionEnded(str(looked["fault"])[:300])
        self._tree = read_tree(looked, WIDTH, HEIGHT)

    def _seen(self, text: str, results: tuple[str, ...] = ()) -> Observation:
        if not self._pictures or self._session is None or self._ended == "session":
            return Observation(text, results)
        return Observation(text, results, (png(self._session.frame()),))


def _quiet(session: DeskSession) -> bytes:
    """What is on the screen once it stays as it is."""
    until, frame = time.monotonic() + RESTLESS_S, session.frame()
    while time.monotonic() < until:
        time.sleep(QUIET_S)
        before, frame = frame, session.frame()
        if before == frame:
            break
    return frame
