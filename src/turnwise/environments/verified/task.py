"""A task of a taskset: which one it is, what the agent is told, and which tools it has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise.errors import DataError

_KNOWN = {"taskset", "folder", "config", "index", "hash", "system", "tools", "answer"}


@dataclass(frozen=True, slots=True)
class TasksetTask:
    """``taskset`` is its id, ``folder`` where its package lies that is not installed, ``hash`` its own word for which
    task it is. ``answer``: what solves it, where it is known."""

    taskset: str
    folder: Path | None
    config: Mapping[str, Any]
    index: int
    hash: str
    system: str
    tools: tuple[Mapping[str, Any], ...]
    answer: str | None

    def asked(self) -> dict[str, Any]:
        """How its process is told which task is meant."""
        return {"taskset": self.taskset, "config": dict(self.config), "index": self.index, "hash": self.hash}


def taskset_task(data: Mapping[str, object]) -> TasksetTask:
    """The task that ``data`` describes. Raises DataError."""
    if odd := sorted(set(data) - _KNOWN):
        raise DataError(f"a task of verifiers has {', '.join(sorted(_KNOWN))}, and no {odd[0]!r}")
    match data:
        case {"taskset": str() as name, "index": int() as index, "hash": str() as digest} if index >= 0:
            pass
        case _:
            raise DataError(
                "'taskset', 'index' and 'hash' say which task it is; `turnwise tasks verifiers` writes them"
            )
    folder, config, system = data.get("folder"), data.get("config", {}), data.get("system") or ""
    tools, answer = data.get("tools", []), data.get("answer")
    if not isinstance(config, dict) or not isinstance(system, str) or not isinstance(tools, list):
        raise DataError("'config' is an object, 'system' a text, and 'tools' a list of functions")
    if not (folder is None or isinstance(folder, str)) or not (answer is None or isinstance(answer, str)):
        raise DataError("'folder' is where the taskset's package lies, and 'answer' a text")
    for tool in tools:
        match tool:
            case {"type": "function", "function": {"name": str(), "parameters": dict()}}:
                pass
            case _:
                raise DataError("'tools' are functions with name and parameters")
    return TasksetTask(
        name, None if folder is None else Path(folder), config, index, digest, system, tuple(tools), answer
    )
