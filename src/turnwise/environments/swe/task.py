"""A task about a repository: what its agent is given, and whether the hidden tests pass with what it left.

Of an agent's folder only the package's own sources are taken, as plain files; tests, their helpers and all settings are
those of the distribution.
"""

from __future__ import annotations

import dataclasses
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from turnwise.environments.swe.hidden import altered, failing, function_of, without
from turnwise.environments.swe.mutations import Edit, planted
from turnwise.environments.swe.packages import Pinned, package_named, read_package
from turnwise.environments.swe.repository import Files, Repository, is_source
from turnwise.environments.swe.suite import machine_python, put_pytest, refuse_copies, run_suite, write_files
from turnwise.environments.terminal.checks import Checked
from turnwise.errors import DataError, FolderFault
from turnwise.sandbox.folder import GuestFolder, delete_folder

_KNOWN = {"package", "version", "python", "edits", "fail_to_pass", "pass_to_pass", "altered"}
MOST_FILES = 400
"""Sources that are taken from an agent's folder."""
RUNNER = ".tools/tests"
"""The script with which an agent runs the tests that it sees."""


@dataclass(frozen=True, slots=True)
class SweTask:
    """A fault in a package. ``altered``: the hidden test functions that must fail when what they expect is changed."""

    package: Pinned
    python: str
    edits: tuple[Edit, ...]
    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...]
    altered: tuple[str, ...]

    @property
    def hidden(self) -> tuple[str, ...]:
        """The test functions that the agent does not see."""
        return tuple(sorted({function_of(test) for test in self.fail_to_pass}))

    def set_up(self, folder: Path) -> None:
        """Write the faulty package without the hidden tests, and a pytest. Raises DataError, SandboxError."""
        repository = read_package(self.package)
        self.check_python()
        refuse_copies(self.package.modules)
        write_files(folder, without(with_faults(repository, self.edits), self.hidden))
        (folder / ".tools").mkdir()
        put_pytest(folder / ".tools" / "pytest")
        runner = f'PYTHONPATH=.tools/pytest:{self.package.path} exec python3 -B -m pytest -q -p no:cacheprovider "$@"\n'
        GuestFolder(folder).write(RUNNER, runner.encode())

    def check(self, folder: Path) -> Checked:
        """Run the tests over the sources that lie in ``folder``, each time in an empty room elsewhere."""
        repository = read_package(self.package)
        try:
            left = left_sources(GuestFolder(folder), repository, self.package.sources)
        except FolderFault as e:
            return Checked(False, str(e))
        files = {way: content for way, content in repository.files.items() if way not in repository.sources}
        files |= left
        place = Path(tempfile.mkdtemp(prefix="turnwise-"))  # the agent may have closed its own folder
        try:
            return self.judge(files, repository.tests, place)
        finally:
            delete_folder(place)

    def judge(self, files: Files, tests: Sequence[str], place: Path) -> Checked:
        """Whether all tests pass on ``files``, and the hidden ones fail where they must."""
        path, hidden = self.package.path, list(self.hidden)
        whole = run_suite(files, tests, path, place)
        for test in (*self.fail_to_pass, *self.pass_to_pass):
            if test not in whole.passed:
                ended = (
                    "did not end well" if whole.stopped_by is None else f"was ended by the limit of {whole.stopped_by}"
                )
                return Checked(False, f"{test}: {whole.failed.get(test, ended)}")
        alone = run_suite(files, hidden, path, place)
        if missing := set(self.fail_to_pass) - alone.passed:
            return Checked(False, f"{min(missing)} does not pass by itself")
        told = run_suite(failing(files, hidden), hidden, path, place)
        if told.passed or not told.failed:
            return Checked(False, "tests that must fail are said to pass: the code tampers with them")
        other = run_suite(altered(files, self.altered), hidden, path, place)
        if any(function_of(test) in self.altered for test in other.passed):
            return Checked(False, "tests pass whatever they expect: the code tampers with them")
        return Checked(True, f"{len(self.fail_to_pass)} tests that failed pass, and so do the others")

    def check_python(self) -> None:
        """Raises DataError where the machine has another Python than the task was made with."""
        if machine_python() != self.python:
            raise DataError(
                f"the task was made with Python {self.python}, and here is {machine_python()}; build it anew"
            )

    def mending(self) -> list[str]:
        """Commands that take the edits back: the oracle."""
        files, commands = read_package(self.package).files, []
        for way in sorted({edit.way for edit in self.edits}):
            whole = files[way].decode().split("\n")
            for line in sorted({edit.place[0] for edit in self.edits if edit.way == way}):
                program = (
                    f"lines = open({way!r}, newline='').read().split('\\n'); lines[{line - 1}] = {whole[line - 1]!r}; "
                    f"open({way!r}, 'w', newline='').write('\\n'.join(lines))"
                )
                commands.append(f"python3 -c {shlex.quote(program)}")
        return commands

    def as_data(self) -> Mapping[str, object]:
        """What a line of a file of tasks has of it."""
        return {
            "package": self.package.name,
            "version": self.package.version,
            "python": self.python,
            "edits": [dataclasses.asdict(edit) | {"place": list(edit.place)} for edit in self.edits],
            "fail_to_pass": list(self.fail_to_pass),
            "pass_to_pass": list(self.pass_to_pass),
            "altered": list(self.altered),
        }


def swe_task(data: Mapping[str, object]) -> SweTask:
    """The task that ``data`` describes. Raises DataError."""
    if set(data) != _KNOWN:
        raise DataError(
            f"a task about a repository has {', '.join(sorted(_KNOWN))}; `turnwise tasks swe build` makes it"
        )
    package = package_named(data["package"])
    if data["version"] != package.version:
        raise DataError(
            f"the task is about {package.name} {data['version']}, and {package.version} is known; build it anew"
        )
    python, edits = data["python"], data["edits"]
    if not isinstance(python, str) or not isinstance(edits, list) or not edits:
        raise DataError("'python' is a version, and 'edits' a list of at least one change")
    hidden, others, changed = (_texts(data, key) for key in ("fail_to_pass", "pass_to_pass", "altered"))
    if not hidden or not others:
        raise DataError("'fail_to_pass' and 'pass_to_pass' name at least one test each")
    return SweTask(package, python, tuple(_edit(each) for each in edits), hidden, others, changed)


def with_faults(repository: Repository, edits: Sequence[Edit]) -> Files:
    """The files of a repository with the edits done. Raises DataError where one does not fit."""
    files = dict(repository.files)
    for way in {edit.way for edit in edits}:
        if way not in repository.sources:
            raise DataError(f"{way} is no source of the package")
        files[way] = planted(files[way].decode(), [edit for edit in edits if edit.way == way]).encode()
    return files


def left_sources(folder: GuestFolder, repository: Repository, tops: tuple[str, ...]) -> Files:
    """The package's sources as an agent left them, new ones beside them too. Raises FolderFault."""
    found: dict[str, bytes] = {}
    for place in sorted({str(PurePosixPath(way).parent) for way in repository.sources}):
        for name in folder.names(place):
            way = str(PurePosixPath(place) / name)
            if is_source(way, tops):
                if len(found) >= MOST_FILES:
                    raise FolderFault(f"there are more than {MOST_FILES} sources")
                found[way] = folder.read(way)
    return found


def _texts(data: Mapping[str, object], key: str) -> tuple[str, ...]:
    given = data[key]
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        raise DataError(f"{key!r} is a list of tests by their names")
    return tuple(given)


def _edit(raw: object) -> Edit:
    match raw:
        case {"way": str() as way, "place": [int() as line, int() as at], "old": str() as old, "new": str() as new}:
            if line > 0 <= at and "\n" not in old + new:
                return Edit(way, (line, at), old, new)
        case _:
            pass
    raise DataError("an edit has way, place (line and character), old and new")
