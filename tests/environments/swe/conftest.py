"""A small package with a fault, made here, and a real one: both are judged in the real sandbox by the real pytest."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.environments.test_terminal import HOLDS
from turnwise.environments.base import Task
from turnwise.environments.swe import packages
from turnwise.environments.swe.building import description
from turnwise.environments.swe.kind import KIND
from turnwise.environments.swe.mutations import Edit
from turnwise.environments.swe.packages import Pinned, package_named, read_package
from turnwise.environments.swe.suite import machine_python
from turnwise.environments.swe.task import SweTask
from turnwise.environments.terminal.environment import TerminalEnvironment
from turnwise.errors import DataError

ADDER = '''"""Adds."""


def add(one, other):
    return one + other


def most(values):
    found = None
    for value in values:
        if found is None or value > found:
            found = value
    return found
'''
TESTS = '''import unittest

import pytest

import adder
from adder import add, most


@pytest.mark.parametrize("one, sum", [(2, 5), (3, 6)])
def test_add(one, sum):
    assert add(one, 3) == sum


class OfAdd(unittest.TestCase):
    def test_of_unittest(self):
        """With unittest."""
        self.assertEqual(add(20, 1), 21)


def test_none_of_none():
    with pytest.raises(TypeError):
        add(None, 1)


def test_most():
    assert most([1, 3, 2]) == 3
'''
FILES = {
    "PKG-INFO": "Name: adder\n",
    "setup.cfg": "[tool:pytest]\naddopts = -q\n",
    "adder/__init__.py": ADDER,
    "tests/conftest.py": "",
    "tests/test_adder.py": TESTS,
}
ADD = "tests/test_adder.py::test_add"
FAULT = (Edit("adder/__init__.py", (5, 15), "+", "-"),)
FAILS = (f"{ADD}[2-5]", f"{ADD}[3-6]", "tests/test_adder.py::OfAdd::test_of_unittest")
PASSES = ("tests/test_adder.py::test_most", "tests/test_adder.py::test_none_of_none")
ALTERED = ("tests/test_adder.py::OfAdd::test_of_unittest", ADD)


def sdist(files: Mapping[str, str]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for way, text in files.items():
            member = tarfile.TarInfo(f"adder-1.0/{way}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return made.getvalue()


@pytest.fixture(autouse=True)
def has_what_it_needs() -> None:
    if not HOLDS:
        pytest.skip("no bubblewrap here (make sandbox)")
    if not packages.pytest_folder().is_dir():
        pytest.skip("no pytest for the sandbox here (make swe)")


@pytest.fixture
def adder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pinned:
    """The small package, in a cache of its own beside the real pytest."""
    content = sdist(FILES)
    package = Pinned("adder", "1.0", "adder-1.0.tar.gz", hashlib.sha256(content).hexdigest(), ("adder",), ".")
    real = packages.pytest_folder()
    monkeypatch.setenv("TURNWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(packages, "packages", lambda: {"adder": package})
    packages.pytest_folder().parent.mkdir(parents=True)
    packages.pytest_folder().symlink_to(real)
    (packages.pytest_folder().parent / package.file).write_bytes(content)
    return package


@pytest.fixture
def task(adder: Pinned) -> Task:
    made = SweTask(adder, machine_python(), FAULT, FAILS, PASSES, ALTERED)
    return Task("adder-0", "swe", description(made, dict.fromkeys(FAILS, "")), made.as_data())


@pytest.fixture
def environment(tmp_path: Path, task: Task) -> Iterator[TerminalEnvironment]:
    from turnwise.config import load_config

    made = KIND.make(tmp_path / "episode", load_config(None, {"home": tmp_path / "home"}))
    made.reset(task)
    yield made
    made.close()


@pytest.fixture
def inflection() -> Pinned:
    package = package_named("inflection")
    try:
        read_package(package)
    except DataError:
        pytest.skip("the sources of inflection are not here (make swe)")
    return package
