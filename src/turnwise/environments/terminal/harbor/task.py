"""A Harbor task as the terminal plays it. Its verifier is a script: it runs in a sandbox of its own, over a copy.

It gives its reward in a file. The agent's copy knows nothing of the place where the script and that file stand, so a
link that was left cannot point there. The script and what belongs to it stand outside of the copy and cannot be
written, so that what the agent left (a `conftest.py`, a `pytest.ini`, a `.local`) does not configure it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from turnwise.environments.terminal.checks import Checked
from turnwise.environments.terminal.harbor.folders import LOGS, LONGEST_S, TESTS
from turnwise.errors import DataError, FolderFault, SandboxError
from turnwise.sandbox.choice import Sandboxes
from turnwise.sandbox.folder import GuestFolder, delete_folder
from turnwise.sandbox.limits import INSIDE, Allowed, BoxLimits

COPY_S = 120.0


@dataclass(frozen=True, slots=True)
class HarborTask:
    """``files`` by their way in the folder, ``setup`` commands, and ``tests``: the verifier's files, with `test.sh`.
    ``sandboxes``: where all of it runs."""

    files: Mapping[str, str]
    tests: Mapping[str, str]
    setup: tuple[str, ...]
    seconds: float
    oracle: tuple[str, ...]
    sandboxes: Sandboxes = field(default_factory=Sandboxes)

    def set_up(self, folder: Path) -> None:
        """Write the files of the beginning into an empty folder. Raises SandboxError where a command of it fails."""
        inside = GuestFolder(folder)
        for way, text in self.files.items():
            inside.write(way, text.encode())
        for command in self.setup:
            ran = self.sandboxes.run(inside, command)
            if ran.status or ran.stopped_by:
                raise SandboxError(f"a command of its Dockerfile failed here ({command[:80]}): {_last(ran.output)}")

    def check(self, folder: Path) -> Checked:
        """Run the verifier. Where it gives no reward, but gives one over the folder of the beginning, what the agent
        left is why, and the reward is 0. Raises SandboxError where it gives none there either."""
        place = Path(tempfile.mkdtemp(prefix="turnwise-"))
        try:
            copy, untouched = place / "copy", place / "untouched"
            reward, said = self._of_what_was_left(folder, copy)
            if reward is not None:
                return Checked(reward, said)
            untouched.mkdir()
            self.set_up(untouched)
            try:
                if self._judged(untouched)[0] is None:
                    raise SandboxError(f"its verifier gave no reward, {said}")
            except FolderFault as e:
                raise SandboxError(f"its verifier's files cannot be written: {e}") from e
            return Checked(0.0, f"the verifier gave no reward, {said}")
        finally:
            delete_folder(place)

    def _of_what_was_left(self, folder: Path, copy: Path) -> tuple[float | None, str]:
        """The same as `_judged` over a copy of the agent's folder. What it did to its folder is no fault of ours."""
        try:
            _copy(folder, copy)
            return self._judged(copy)
        except FolderFault as e:
            return None, str(e)

    def _judged(self, folder: Path) -> tuple[float | None, str]:
        """The reward over this folder and what the verifier said last; without a reward, why there is none."""
        own, copy = f"verifier-{uuid.uuid4().hex}", GuestFolder(folder)
        tests, logs = f"/{own}", f"{INSIDE}/.{own}"
        given = GuestFolder(folder.parent / own)
        given.path.mkdir()
        for way, text in self.tests.items():
            given.write(way, text.replace(TESTS, tests).replace(LOGS, logs).encode())
        copy.write(f".{own}/verifier/.keep", b"")
        allowed = Allowed(sees={tests: given.path}, variables={"HOME": "/tmp"})
        limits = BoxLimits(seconds=self.seconds, disk_mb=512, entries=40_000, output_kb=4096)
        ran = self.sandboxes.run(copy, f"bash {tests}/test.sh", limits, allowed)
        if ran.stopped_by:  # whatever stands in the file, the script did not come to its end
            return None, f"it met the limit of {ran.stopped_by}: {_last(ran.output)}"
        for name in ("reward.txt", "reward.json"):
            try:
                return _reward(copy.read(f".{own}/verifier/{name}", 4096).decode()), _last(ran.output)
            except (FileNotFoundError, FolderFault, UnicodeDecodeError):
                continue
            except DataError as e:
                return None, str(e)
        return None, f"it ended with status {ran.status}: {_last(ran.output)}"


def _copy(folder: Path, to: Path) -> None:
    """Copy a folder that somebody else filled; links stay links, and are not followed. What nobody may read stays
    out. Raises FolderFault where it cannot be copied for what it is, SandboxError for another reason."""
    program = shutil.which("cp")
    if program is None:
        raise SandboxError("cp is not here; install coreutils")
    told = [program, "-a", "--no-dereference", "--", str(folder), str(to)]
    spoken = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(told, timeout=COPY_S, capture_output=True, check=False, env=spoken)
    except subprocess.TimeoutExpired:
        raise FolderFault(f"the folder cannot be copied for the verifier within {COPY_S:.0f} s") from None
    if b"No space left on device" in done.stderr:
        raise SandboxError("the disk has no room for a copy of the folder; its verifier needs one")
    if (done.returncode and not only_closed(done.stderr)) or not to.is_dir():
        raise FolderFault(f"the folder cannot be copied for the verifier: {_last(done.stderr)}")
    to.chmod(0o700)  # it has the rights that the agent gave its folder


def only_closed(said: bytes) -> bool:
    """Whether `cp` said of files that they may not be read, and nothing else; it names each in a line."""
    lines = said.splitlines()
    return bool(lines) and all(line.endswith(b": Permission denied") for line in lines)


def _reward(given: str) -> float:
    """The reward in the verifier's file: a number, or an object with one. Raises DataError."""
    try:
        said = json.loads(given)
        number = float(said.get("reward", next(iter(said.values()))) if isinstance(said, dict) else said)
    except (ValueError, TypeError, StopIteration, OverflowError, RecursionError):
        raise DataError(f"the verifier's reward is no number: {given[:80]!r}") from None
    if not 0.0 <= number <= 1.0:
        raise DataError(f"the verifier's reward is {number:g}, and not from 0 to 1")
    return number


def _last(output: bytes) -> str:
    return output.decode(errors="replace").strip()[-300:]


def harbor_task(data: Mapping[str, object], sandboxes: Sandboxes | None = None) -> HarborTask:
    """The task that ``data`` describes, as `folders.read_folder` writes it. Raises DataError."""
    harbor, oracle = data.get("harbor"), data.get("oracle", [])
    if set(data) - {"harbor", "oracle"} or not isinstance(harbor, Mapping):
        raise DataError("a Harbor task has harbor and oracle; make its line with `turnwise tasks harbor`")
    files, tests, setup, seconds = (harbor.get(key) for key in ("files", "tests", "setup", "seconds"))
    texts = [each for each in (files, tests) if isinstance(each, Mapping)]
    commands = [each for each in (setup, oracle) if isinstance(each, (list, tuple))]
    fits = len(texts) == len(commands) == 2 and isinstance(seconds, (int, float)) and "test.sh" in texts[1]
    fits = fits and all(isinstance(part, str) for each in texts for pair in each.items() for part in pair)
    if not fits or not all(isinstance(part, str) for each in commands for part in each):
        raise DataError("'harbor' has files, tests (with test.sh), setup and seconds")
    assert isinstance(seconds, (int, float))
    within = float(min(LONGEST_S, max(1, seconds)))
    of = (texts[0], texts[1], tuple(commands[0]), within, tuple(commands[1]))
    return HarborTask(*of, sandboxes or Sandboxes())
