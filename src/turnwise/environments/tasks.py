"""Files of tasks: JSON, one object a line, each checked by its kind of environment before the first is played."""

from __future__ import annotations

import json
from pathlib import Path

from turnwise.environments.base import Task
from turnwise.environments.kinds import kind_of
from turnwise.errors import DataError

MOST_TASKS = 100_000
MOST_OF_A_LINE = 4 << 20
"""Characters of a task."""
MOST_OF_AN_ID = 80
"""Characters; it becomes a part of the names of sessions and groups."""
_OURS = ("id", "environment", "prompt")


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


def written(task: Task) -> str:
    """A task as a line of such a file."""
    return json.dumps({"id": task.id, "environment": task.environment, "prompt": task.prompt, **task.data})


def _task(line: str, where: str) -> Task:
    try:
        raw = json.loads(line)
    except (ValueError, RecursionError) as e:
        raise DataError(f"{where} is no JSON object ({str(e)[:80]})") from None
    if not isinstance(raw, dict) or not {"id", "prompt"} <= set(raw):
        raise DataError(f"{where}: a task is an object with id, prompt, and what its environment asks for")
    name, prompt, environment = raw["id"], raw["prompt"], raw.get("environment", "terminal")
    if not isinstance(name, str) or not 1 <= len(name) <= MOST_OF_AN_ID or not is_plain(name):
        raise DataError(f"{where}: an id is 1 to {MOST_OF_AN_ID} letters, digits or any of . _ -")
    if not isinstance(prompt, str) or not prompt.strip():
        raise DataError(f"{where}: the prompt is a text that says what to do")
    data = {key: value for key, value in raw.items() if key not in _OURS}
    try:
        kind_of(str(environment)).check_task(data)
    except DataError as e:
        raise DataError(f"{where}: {e}") from None
    return Task(name, str(environment), prompt, data)


def is_plain(name: str) -> bool:
    """Whether a name can stand in the name of a session."""
    return name.isascii() and all(sign.isalnum() or sign in "._-" for sign in name)
