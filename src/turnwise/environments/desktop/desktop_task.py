"""Desktop tasks as data: what there is and is open at the beginning, and what there must be at the end.

Files are looked at from outside by the checks of terminal tasks, when no program of the agent lives any more.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from turnwise.environments.base import Action, Call
from turnwise.environments.desktop.programs import PROGRAMS
from turnwise.environments.terminal.checks import Checked
from turnwise.environments.terminal.files_task import FilesTask, files_task
from turnwise.errors import DataError, FolderFault
from turnwise.sandbox.folder import GuestFolder

_OF_FILES = {"files", "expect", "checks"}
_KNOWN = _OF_FILES | {"folders", "made", "opens", "front", "oracle", "spoiler"}
_PLACEHOLDER = "made"


@dataclass(frozen=True, slots=True)
class DesktopTask:
    """``folders`` are made at the beginning, ``made`` must be there at the end. ``opens`` are programs that run when it
    begins, each with a file of the task or None. ``front``: what the title of the window in front says at the end."""

    of_files: FilesTask | None
    folders: tuple[str, ...]
    made: tuple[str, ...]
    opens: tuple[tuple[str, str | None], ...]
    front: str | None
    oracle: tuple[Action, ...]
    spoiler: tuple[Action, ...]

    def set_up(self, folder: Path) -> None:
        """Write files and folders of the beginning into an empty folder. Raises FolderFault, SandboxError."""
        inside = GuestFolder(folder)
        for way in self.folders:
            inside.write(f"{way}/{_PLACEHOLDER}", b"")
            (folder / way / _PLACEHOLDER).unlink()
        if self.of_files is not None:
            self.of_files.set_up(folder)

    def check(self, folder: Path, front: str) -> Checked:
        """Look at what the agent left. ``front``: the title of the window that was in front."""
        for way in self.made:
            try:
                found = stat.S_ISDIR(GuestFolder(folder).status(way).st_mode)
            except (FileNotFoundError, FolderFault):
                found = False
            if not found:
                return Checked(False, f"there is no folder {way}")
        if self.front is not None and self.front not in front:
            return Checked(False, f"the window in front is not that of {self.front}")
        if self.of_files is not None:
            return self.of_files.check(folder)
        return Checked(True, "all is as expected")


def desktop_task(data: Mapping[str, object]) -> DesktopTask:
    """The task that ``data`` describes. Raises DataError."""
    if odd := sorted(set(data) - _KNOWN):
        raise DataError(f"a task of the desktop has {', '.join(sorted(_KNOWN))}, and no {odd[0]!r}")
    of_files = {key: data[key] for key in _OF_FILES if key in data}
    made, front = _texts(data, "made"), data.get("front")
    if front is not None and (not isinstance(front, str) or not front):
        raise DataError("'front' is what the title of a window says")
    if not (of_files.get("expect") or of_files.get("checks") or made or front):
        raise DataError("a task of the desktop says what must be: expect, checks, made or front")
    looked_at = bool(of_files.get("expect") or of_files.get("checks"))
    if not looked_at and of_files.get("files"):
        raise DataError("a task with files says with expect or checks what must become of them")
    files = files_task(of_files) if looked_at else None
    folders, opens = _texts(data, "folders"), _opens(data)
    return DesktopTask(files, folders, made, opens, front, _deeds(data, "oracle"), _deeds(data, "spoiler"))


def _texts(data: Mapping[str, object], key: str) -> tuple[str, ...]:
    given = data.get(key, [])
    if not isinstance(given, (list, tuple)) or not all(isinstance(each, str) and each for each in given):
        raise DataError(f"'{key}' is a list of folders")
    return tuple(given)


def _opens(data: Mapping[str, object]) -> tuple[tuple[str, str | None], ...]:
    given = data.get("opens", [])
    found: list[tuple[str, str | None]] = []
    for each in given if isinstance(given, Sequence) and not isinstance(given, str) else [None]:
        name, way = each if isinstance(each, (list, tuple)) and len(each) == 2 else (None, None)
        if name not in PROGRAMS or not (way is None or (isinstance(way, str) and "\n" not in way and "\0" not in way)):
            raise DataError(f"'opens' is a list of pairs of a program ({', '.join(PROGRAMS)}) and a file or null")
        found.append((str(name), way))
    return tuple(found)


def _deeds(data: Mapping[str, object], key: str) -> tuple[Action, ...]:
    given = data.get(key, [])
    found = []
    for each in given if isinstance(given, (list, tuple)) else [None]:
        name, arguments = each if isinstance(each, (list, tuple)) and len(each) == 2 else (None, None)
        if not isinstance(name, str) or not isinstance(arguments, Mapping):
            raise DataError(f"'{key}' is a list of pairs of a tool's name and its arguments")
        found.append(Action((Call(name, arguments),)))
    return tuple(found)
