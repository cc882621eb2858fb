"""Runs a package's tests in a sandbox of their own: files of ours alone, the machine's Python, and a pytest of ours.

Neither the machine's installed packages nor anything that runs by itself at Python's start (`site`, `.pth` files,
`sitecustomize`, variables) has a part in it. The tests run code of an agent, which can say anything about how they
ended; `hidden.py` has what shows that it does.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from turnwise.environments.swe.packages import pytest_folder
from turnwise.environments.swe.repository import Files
from turnwise.errors import DataError, FolderFault, SandboxError
from turnwise.sandbox.box import Box
from turnwise.sandbox.folder import GuestFolder, delete_folder
from turnwise.sandbox.limits import BoxLimits, Stop

INSIDE = Path(__file__).with_name("inside.py")
LIMITS = BoxLimits(seconds=120, memory_mb=1024, disk_mb=128)
"""Of one run of a suite; the largest of them takes about 10 s."""
MOST_RESULTS = 8 << 20
"""Bytes."""
MOST_SAID = 200
"""Characters of what a test says."""


@dataclass(frozen=True, slots=True)
class SuiteResults:
    """How tests ended, by their names. ``failed`` has the first line of what each said."""

    passed: frozenset[str] = frozenset()
    failed: Mapping[str, str] = field(default_factory=dict)
    stopped_by: Stop | None = None


def run_suite(files: Files, tests: Sequence[str], path: str, place: Path, limits: BoxLimits = LIMITS) -> SuiteResults:
    """Run ``tests`` (files, or tests by their names) of a repository below ``place``, where nothing is left of it.

    Raises SandboxError, and DataError where there is no pytest in the cache.
    """
    folder = place / uuid.uuid4().hex
    folder.mkdir(parents=True, mode=0o700)
    try:
        put_pytest(folder / "pytest")
        write_files(folder / "repository", files)
        (folder / "inside.py").write_bytes(INSIDE.read_bytes())
        asked = {"pytest": "/box/pytest", "path": [path], "tests": list(tests)}
        (folder / "asked.json").write_text(json.dumps(asked), encoding="utf-8")
        ran = Box(GuestFolder(folder), limits).run("exec python3 -I -S -B inside.py > log 2>&1")
        return _read(GuestFolder(folder), ran.stopped_by)
    finally:
        delete_folder(folder)


def put_pytest(folder: Path) -> None:
    """Copy the pytest of the cache. Raises DataError where it was not fetched."""
    if not pytest_folder().is_dir():
        raise DataError("there is no pytest for the sandbox; `turnwise tasks swe build` fetches it")
    shutil.copytree(pytest_folder(), folder)


def write_files(folder: Path, files: Files) -> None:
    folder.mkdir(exist_ok=True)
    guest = GuestFolder(folder)
    for way, content in files.items():
        guest.write(way, content)


@cache
def machine_python() -> str:
    """The version of the machine's Python that the sandbox shows, as 3.11. Raises SandboxError where there is none."""
    with TemporaryDirectory(prefix="turnwise-") as place:
        ran = Box(GuestFolder(Path(place))).run(
            "python3 -I -S -c 'import sys; print(\"%d.%d\" % sys.version_info[:2])'"
        )
    said = ran.output.decode(errors="replace").strip()
    if ran.status or not said.startswith("3."):
        raise SandboxError("there is no Python of the machine in the sandbox; install it (Debian: the package python3)")
    return said


@cache
def refuse_copies(modules: tuple[str, ...]) -> None:
    """Raises SandboxError where the machine's own programs hold one of these modules: an agent could copy it."""
    named = " -o ".join(f"-name {module} -o -name {module}.py" for module in modules)
    with TemporaryDirectory(prefix="turnwise-") as place:
        ran = Box(GuestFolder(Path(place))).run(f"find /usr/lib/python3* /usr/local/lib {named} 2>/dev/null; true")
    if found := ran.output.decode(errors="replace").strip():
        raise SandboxError(f"the sandbox shows {found.splitlines()[0]}, which a task is about; use another package")


def _read(folder: GuestFolder, stopped_by: Stop | None) -> SuiteResults:
    """What the run wrote. Lines that are no results are left out: a guest may have written them."""
    passed: set[str] = set()
    failed: dict[str, str] = {}
    try:
        lines = folder.read("results.jsonl", MOST_RESULTS).decode(errors="replace").splitlines()
    except (FolderFault, FileNotFoundError):
        lines = []
    for line in lines:
        match _parsed(line):
            case [str() as name, "passed", str()]:
                passed.add(name)
            case [str() as name, "failed", str() as said]:
                failed[name] = said[:MOST_SAID]
            case _:
                pass
    return SuiteResults(frozenset(passed - failed.keys()), failed, stopped_by)


def _parsed(line: str) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
