"""Makes tasks of packages: a fault is kept when hidden tests fail by it each time, and others pass as before.

What is made depends on the package's pinned file, on the seed and on the machine's Python, not on the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from turnwise.environments.base import Task
from turnwise.environments.swe.hidden import altered, failing, function_of, without
from turnwise.environments.swe.mutations import Edit, chosen, edits_of
from turnwise.environments.swe.packages import Pinned, read_package
from turnwise.environments.swe.suite import machine_python, run_suite
from turnwise.environments.swe.task import RUNNER, SweTask, with_faults
from turnwise.errors import DataError

MOST_TRIES = 12
"""Faults tried for one seed."""
MOST_FAILING = 0.25
"""Share of the tests that a fault may break; what breaks more is seen at once, or is an import."""
MOST_TOLD = 5
"""Failing tests that the description names."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """A fault that makes no task, and why."""

    package: str
    seed: int
    reason: str


class SweTasks:
    """Tasks of one package; its tests run below ``place``."""

    def __init__(self, package: Pinned, place: Path) -> None:
        self._package, self._place = package, place
        self._repository = read_package(package)
        self._edits = [e for way in self._repository.sources for e in edits_of(way, self._source(way))]
        first, second = self._run(), self._run()
        self._green = first & second
        if not self._green:
            raise DataError(f"no test of {package.name} passes here; leave it out")

    def make(self, seed: int, most_edits: int) -> Iterator[Task | Dropped]:
        """Faults until one makes a task: the task comes last, if there is one."""
        for attempt in range(MOST_TRIES):
            random = Random(f"{self._package.name} {self._package.version} {seed} {attempt}")
            try:
                yield self._task(chosen(self._edits, most_edits, random), seed)
                return
            except DataError as e:
                yield Dropped(self._package.name, seed, str(e))

    def _task(self, edits: tuple[Edit, ...], seed: int) -> Task:
        """Raises DataError with why these edits make no task."""
        files, tests, path = with_faults(self._repository, edits), self._repository.tests, self._package.path
        ran = run_suite(files, tests, path, self._place)
        if ran.stopped_by is not None:
            raise DataError(f"the tests met the limit of {ran.stopped_by}")
        broken = self._green - ran.passed
        if not broken or len(broken) > MOST_FAILING * len(self._green):
            raise DataError(f"{len(broken)} of {len(self._green)} tests fail by it")
        if not broken <= ran.failed.keys():
            raise DataError("tests are not found any more")
        again = run_suite(files, tests, path, self._place)
        if self._green - again.passed != broken:
            raise DataError("the tests do not fail alike each time")
        hidden = sorted({function_of(test) for test in broken})
        without(files, hidden)
        changed = self._changed(hidden, broken)
        others = tuple(sorted(self._green & ran.passed))
        made = SweTask(self._package, machine_python(), edits, tuple(sorted(broken)), others, changed)
        prompt = description(made, {test: _same(ran.failed[test], again.failed[test]) for test in sorted(broken)})
        return Task(f"{self._package.name}-{seed}", "swe", prompt, made.as_data())

    def _changed(self, hidden: list[str], broken: frozenset[str]) -> tuple[str, ...]:
        """The functions that fail on the right sources once what they expect is changed. Raises DataError where the
        hidden tests do not show who cheats."""
        files, path = self._repository.files, self._package.path
        alone = run_suite(files, hidden, path, self._place)
        if not broken <= alone.passed:
            raise DataError("the hidden tests do not pass by themselves")
        told = run_suite(failing(files, hidden), hidden, path, self._place)
        if told.passed or not told.failed:
            raise DataError("a failing check cannot be put into the hidden tests")
        other = run_suite(altered(files, hidden), hidden, path, self._place)
        return tuple(sorted(set(hidden) - {function_of(test) for test in other.passed}))

    def _run(self) -> frozenset[str]:
        return run_suite(self._repository.files, self._repository.tests, self._package.path, self._place).passed

    def _source(self, way: str) -> str:
        try:
            return self._repository.files[way].decode()
        except UnicodeDecodeError:
            return ""


def description(task: SweTask, failures: dict[str, str]) -> str:
    """An issue as somebody would write it who only saw the tests fail."""
    package = task.package
    told = [f"- {test}" + (f": {said}" if said else "") for test, said in list(failures.items())[:MOST_TOLD]]
    if len(failures) > MOST_TOLD:
        told.append(f"- and {len(failures) - MOST_TOLD} more")
    return "\n".join(
        [
            f"The package {package.name} {package.version} in this folder does not do any more what it should. Tests",
            "that are not in this folder fail:",
            *told,
            f"Find the fault and mend it in the package's sources ({', '.join(package.sources)}). All other tests must",
            f"pass as before; `sh {RUNNER}` runs those that are here.",
        ]
    )


def _same(one: str, other: str) -> str:
    """What a test said, if it said the same twice and names no place in memory."""
    return one if one == other and "0x" not in one and "/box" not in one else ""


def build(
    packages: list[Pinned], seeds: list[int], most_edits: int, place: Path, say: Callable[[str], None]
) -> Iterator[Task | Dropped]:
    """Tasks of these packages, one for each seed. Raises DataError, SandboxError."""
    for package in packages:
        say(f"{package.name} {package.version}: its tests as they are, twice")
        tasks = SweTasks(package, place)
        for seed in seeds:
            yield from tasks.make(seed, most_edits)
