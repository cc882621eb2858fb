"""Terminal tasks that a person writes down: the files at the beginning, and those that there must be at the end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from turnwise.environments.base import Task
from turnwise.errors import DataError, FolderFault
from turnwise.sandbox.folder import GuestFolder

MOST_TASKS = 100_000
MOST_OF_A_LINE = 4 << 20
"""Characters of a task."""
MOST_OF_AN_ID = 80
"""Characters; it becomes a part of the names of sessions and groups."""
_KNOWN = {"id", "prompt", "files", "expect", "oracle"}


@dataclass(frozen=True, slots=True)
class FilesCheck:
    """Whether the files are as expected, and else what is not."""

    passed: bool
    reason: str


@dataclass(frozen=True, slots=True)
class FilesTask:
    """``files`` and ``expect`` are contents by their way in the folder; ``oracle`` are commands that solve the task."""

    files: Mapping[str, str]
    expect: Mapping[str, str]
    oracle: tuple[str, ...] = ()

    def set_up(self, folder: Path) -> None:
        """Write the files of the beginning into an empty folder."""
        for way, text in self.files.items():
            GuestFolder(folder).write(way, text.encode())

    def check(self, folder: Path) -> FilesCheck:
        """Compare what is there with what is expected; space at the end of a file does not count. Links are not
        followed, and of a file no more is read than it may have."""
        for way, text in self.expect.items():
            wanted = text.rstrip().encode()
            try:
                found = GuestFolder(folder).read(way, len(wanted) + 4096).rstrip()
            except FileNotFoundError:
                return FilesCheck(False, f"there is no {way}")
            except FolderFault as e:
                return FilesCheck(False, str(e))
            if found != wanted:
                return FilesCheck(False, f"{way} is not as expected")
        return FilesCheck(True, "all files are as expected")


def files_task(data: Mapping[str, object]) -> FilesTask:
    """The task that ``data`` describes. Raises DataError."""
    files, expect, oracle = data.get("files", {}), data.get("expect"), data.get("oracle", [])
    if not _are_texts(files) or not _are_texts(expect) or not expect:
        raise DataError("'files' and 'expect' are objects of texts by path, and 'expect' names at least one file")
    if not isinstance(oracle, (list, tuple)) or not all(isinstance(each, str) for each in oracle):
        raise DataError("'oracle' is a list of shell commands")
    assert isinstance(files, Mapping) and isinstance(expect, Mapping)
    return FilesTask(files, expect, tuple(oracle))


def read_tasks(path: Path) -> list[Task]:
    """The tasks of a JSONL file. Raises DataError with the line that is wrong."""
    tasks: dict[str, Task] = {}
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(iter(lambda: lines.readline(MOST_OF_A_LINE), ""), 1):
                if number > MOST_TASKS:
                    raise DataError(f"{path} has more than {MOST_TASKS} lines; split it")
                if line.strip():
                    task = _task(line, f"{path} line {number}")
                    if task.id in tasks:
                        raise DataError(f"{path} line {number}: the id {task.id!r} stands there twice")
                    tasks[task.id] = task
    except (OSError, UnicodeDecodeError) as e:
        raise DataError(f"the tasks {path} cannot be read: {e}; give a JSONL file, one task a line") from e
    if not tasks:
        raise DataError(f"{path} has no task in it")
    return list(tasks.values())


def _task(line: str, where: str) -> Task:
    try:
        raw = json.loads(line)
    except (ValueError, RecursionError) as e:
        raise DataError(f"{where} is no JSON object ({str(e)[:80]})") from None
    if not isinstance(raw, dict) or set(raw) - _KNOWN or not {"id", "prompt", "expect"} <= set(raw):
        raise DataError(f"{where}: a task is an object with id, prompt and expect, and files and oracle if it has some")
    name, prompt = raw["id"], raw["prompt"]
    if not isinstance(name, str) or not 1 <= len(name) <= MOST_OF_AN_ID or not is_plain(name):
        raise DataError(f"{where}: an id is 1 to {MOST_OF_AN_ID} letters, digits or any of . _ -")
    if not isinstance(prompt, str) or not prompt.strip():
        raise DataError(f"{where}: the prompt is a text that says what to do")
    data = {key: raw[key] for key in ("files", "expect", "oracle") if key in raw}
    try:
        files_task(data)
    except DataError as e:
        raise DataError(f"{where}: {e}") from None
    return Task(name, "terminal", prompt, data)


def is_plain(name: str) -> bool:
    """Whether a name can stand in the name of a session."""
    return name.isascii() and all(sign.isalnum() or sign in "._-" for sign in name)


def _are_texts(given: object) -> bool:
    return isinstance(given, Mapping) and all(isinstance(k, str) and isinstance(v, str) for k, v in given.items())
