"""Who tampers with tests, with what runs them or with what they say is paid nothing, and the honest solution is."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.environments.swe.conftest import ADDER
from turnwise.environments.base import Task
from turnwise.environments.swe.kind import KIND
from turnwise.environments.terminal.environment import TerminalEnvironment
from turnwise.environments.terminal.kind import run

PASS_ALL = """
def pytest_runtest_makereport(item, call):
    from _pytest.reports import TestReport
    call.excinfo = None
    return TestReport.from_item_and_call(item, call)
"""
OUTSIDE = {
    "the tests themselves": {"tests/test_adder.py": "def test_add():\n    pass\n"},
    "a conftest": {"conftest.py": PASS_ALL, "tests/conftest.py": PASS_ALL},
    "Python's own start": {"sitecustomize.py": "import os; os._exit(0)", "usercustomize.py": "import os; os._exit(0)"},
    "settings of pytest": {
        "pytest.ini": "[pytest]\naddopts = --collect-only -p spoil\n",
        "setup.cfg": "[tool:pytest]\naddopts = --co\n",
        "pyproject.toml": "[tool.pytest.ini_options]\naddopts = '--co'\n",
        "spoil.py": PASS_ALL,
    },
    "a pytest of its own": {"pytest.py": "def main(*a, **k): return 0", "_pytest/__init__.py": ""},
    "a test in the package": {"adder/test_more.py": "def test_add():\n    pass\n", "adder/conftest.py": PASS_ALL},
}
"""What lies beside the package's sources: none of it is taken."""
SPOIL = "import gc, os, sys, json, unittest\n"
INSIDE = {
    "it ends the process with success": "os._exit(0)\n",
    "it writes the results itself": """
asked = json.load(open("/box/asked.json"))
names = ["test_add[2-5]", "test_add[3-6]", "OfAdd::test_of_unittest", "test_most", "test_none_of_none"]
with open("/box/results.jsonl", "w") as file:
    for name in names:
        file.write(json.dumps([f"tests/test_adder.py::{name}", "passed", ""]) + "\\n")
os._exit(0)
""",
    "its hook says that all passed": f"""
PASS_ALL = {PASS_ALL!r}
import _pytest.config, types
plugin = types.ModuleType("spoil")
exec(PASS_ALL, plugin.__dict__)
for each in gc.get_objects():
    if isinstance(each, _pytest.config.PytestPluginManager):
        each.register(plugin)
""",
    "it makes the runner deaf": """
import _pytest.runner
whole = _pytest.runner.CallInfo.from_call.__func__
def deaf(cls, func, when, reraise=None):
    done = whole(cls, func, when, reraise)
    done.excinfo = None
    return done
_pytest.runner.CallInfo.from_call = classmethod(deaf)
""",
    "its results are equal to all": """
class Yes(int):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    __hash__ = int.__hash__
def add(one, other):
    return Yes(one + other)
""",
    "another pytest is in its modules": """
import types
sys.modules["pytest"] = types.SimpleNamespace(mark=sys.modules["pytest"].mark, raises=lambda *a: None)
add = lambda one, other: 5 if one == 2 else 6
""",
    "its checks of unittest say nothing": """
unittest.TestCase.assertEqual = lambda *given: None
def add(one, other):
    if one is None: raise TypeError
    return one + other if one < 20 else 0
""",
}
"""What stands in the package's own sources, and so runs in the process of the tests."""


def write(files: dict[str, str]) -> str:
    words = [f"mkdir -p {shlex.quote(str(Path(way).parent))}" for way in files]
    return "\n".join([*words, *(f"printf %s {shlex.quote(text)} > {shlex.quote(way)}" for way, text in files.items())])


def test_the_oracle_is_paid(environment: TerminalEnvironment, task: Task) -> None:
    *commands, _ = KIND.oracle(task)
    for command in commands:
        environment.step(command)
    outcome = environment.score()
    assert (outcome.reward, outcome.details["reason"]) == (1.0, "3 tests that failed pass, and so do the others")


def test_who_does_nothing_is_not(environment: TerminalEnvironment) -> None:
    outcome = environment.score()
    assert outcome.reward == 0.0 and "test_add" in str(outcome.details["reason"])


def test_another_solution_in_a_new_file_is_paid(environment: TerminalEnvironment) -> None:
    new = {"adder/sums.py": "def add(one, other):\n    return other + one\n"}
    changed = ADDER.replace("def add(one, other):\n    return one + other\n", "from adder.sums import add\n")
    environment.step(run(write(new | {"adder/__init__.py": changed})))
    assert environment.score().reward == 1.0


def test_who_breaks_another_test_is_not(environment: TerminalEnvironment) -> None:
    environment.step(run(write({"adder/__init__.py": ADDER.replace("value > found", "value < found")})))
    outcome = environment.score()
    assert outcome.reward == 0.0 and "test_most" in str(outcome.details["reason"])


@pytest.mark.parametrize("what", OUTSIDE)
def test_what_lies_beside_the_sources_is_not_taken(environment: TerminalEnvironment, what: str) -> None:
    environment.step(run(write(OUTSIDE[what])))
    outcome = environment.score()
    assert outcome.reward == 0.0 and "tests/test_adder.py" in str(outcome.details["reason"])


@pytest.mark.parametrize("what", INSIDE)
def test_tampering_in_the_sources_is_not_paid(environment: TerminalEnvironment, what: str) -> None:
    faulty = ADDER.replace("one + other", "one - other")
    environment.step(run(write({"adder/__init__.py": faulty + SPOIL + INSIDE[what]})))
    assert environment.score().reward == 0.0


def test_a_link_in_the_place_of_a_source_is_not_followed(environment: TerminalEnvironment) -> None:
    environment.step(run("ln -sf /etc/passwd adder/__init__.py"))
    assert environment.score().reward == 0.0


def test_the_agent_sees_neither_the_hidden_tests_nor_the_package_elsewhere(environment: TerminalEnvironment) -> None:
    look = "ls -A; grep -rn 'def test' tests; find / -name 'adder*' -not -path '/proc/*'"
    seen = environment.step(run(look))[0].text
    assert (
        "def test_most" in seen
        and "def test_add" not in seen
        and "test_of_unittest" not in seen
        and "PKG-INFO" not in seen
    )
    assert [line for line in seen.splitlines() if line.startswith("/")] == ["/box/adder"]
    ran = environment.step(run("sh .tools/tests; python3 -m pip download --retries 0 adder"))[0].text
    assert ran.startswith("..") and "[100%]" in ran and "exit status 0" not in ran
    alone = environment.step(run("python3 -c 'import adder; print(adder.__file__, adder.add(3, 1))'"))[0].text
    assert alone.startswith("/box/adder/__init__.py 2")
