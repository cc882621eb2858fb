"""Terminal tasks that a person writes down: the files at the beginning, and those that there must be at the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from turnwise.errors import DataError, FolderFault
from turnwise.sandbox.folder import GuestFolder

_KNOWN = {"files", "expect", "oracle"}


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
    if odd := sorted(set(data) - _KNOWN):
        raise DataError(f"a task of the terminal has files, expect and oracle, and no {odd[0]!r}")
    files, expect, oracle = data.get("files", {}), data.get("expect"), data.get("oracle", [])
    if not _are_texts(files) or not _are_texts(expect) or not expect:
        raise DataError("'files' and 'expect' are objects of texts by path, and 'expect' names at least one file")
    if not isinstance(oracle, (list, tuple)) or not all(isinstance(each, str) for each in oracle):
        raise DataError("'oracle' is a list of shell commands")
    assert isinstance(files, Mapping) and isinstance(expect, Mapping)
    return FilesTask(files, expect, tuple(oracle))


def _are_texts(given: object) -> bool:
    return isinstance(given, Mapping) and all(isinstance(k, str) and isinstance(v, str) for k, v in given.items())
