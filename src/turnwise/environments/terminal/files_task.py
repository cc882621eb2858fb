"""Terminal tasks as data: the files at the beginning, what there must be at the end, and commands that solve them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from turnwise.environments.terminal.checks import Checked, TaskCheck, failed, read_checks
from turnwise.errors import DataError, SandboxError
from turnwise.sandbox.choice import Sandboxes
from turnwise.sandbox.folder import GuestFolder

_KNOWN = {"files", "expect", "checks", "setup", "oracle"}


@dataclass(frozen=True, slots=True)
class FilesTask:
    """``files`` are contents by their way in the folder, ``setup`` commands that make of them what is no plain text;
    ``checks`` are what the verifier looks at, ``oracle`` commands that solve the task. ``sandboxes``: where
    commands run."""

    files: Mapping[str, str]
    checks: tuple[TaskCheck, ...]
    setup: tuple[str, ...] = ()
    oracle: tuple[str, ...] = ()
    sandboxes: Sandboxes = field(default_factory=Sandboxes)

    def set_up(self, folder: Path) -> None:
        """Write the files of the beginning into an empty folder. Raises SandboxError where a command of it fails."""
        inside = GuestFolder(folder)
        for way, text in self.files.items():
            inside.write(way, text.encode())
        for command in self.setup:
            ran = self.sandboxes.run(inside, command)
            if ran.status or ran.stopped_by:
                said = ran.output.decode(errors="replace").strip()[-300:]
                raise SandboxError(f"a command that prepares the task failed ({command[:80]}): {said}")

    def check(self, folder: Path) -> Checked:
        """Look at what the agent left: the first check that fails is the reason."""
        for check in self.checks:
            reason = failed(GuestFolder(folder), check, self.sandboxes)
            if reason is not None:
                return Checked(False, reason)
        return Checked(True, "all is as expected")


def files_task(data: Mapping[str, object], sandboxes: Sandboxes | None = None) -> FilesTask:
    """The task that ``data`` describes. Raises DataError."""
    if odd := sorted(set(data) - _KNOWN):
        raise DataError(f"a task of the terminal has {', '.join(sorted(_KNOWN))}, and no {odd[0]!r}")
    files, expect = data.get("files", {}), data.get("expect", {})
    if not _are_texts(files) or not _are_texts(expect):
        raise DataError("'files' and 'expect' are objects of texts by path")
    assert isinstance(files, Mapping) and isinstance(expect, Mapping)
    checks = (*(TaskCheck("file", way, text) for way, text in expect.items()), *read_checks(data.get("checks", [])))
    if not checks:
        raise DataError("'expect' names at least one file, or 'checks' has at least one")
    of = (files, checks, _commands(data, "setup"), _commands(data, "oracle"))
    return FilesTask(*of, sandboxes or Sandboxes())


def _commands(data: Mapping[str, object], key: str) -> tuple[str, ...]:
    given = data.get(key, [])
    if not isinstance(given, (list, tuple)) or not all(isinstance(each, str) for each in given):
        raise DataError(f"'{key}' is a list of shell commands")
    return tuple(given)


def _are_texts(given: object) -> bool:
    return isinstance(given, Mapping) and all(isinstance(k, str) and isinstance(v, str) for k, v in given.items())
