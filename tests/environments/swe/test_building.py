"""Faults are small, reproducible and shown by hidden tests; archives and files of tasks are read with suspicion."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from random import Random

import pytest
from typer.testing import CliRunner

from tests.environments.swe.conftest import ALTERED, FAILS, FILES, sdist
from turnwise.cli.main import app
from turnwise.config import load_config
from turnwise.environments.base import InfrastructureFailure, Task
from turnwise.environments.swe import building, packages
from turnwise.environments.swe.building import Dropped, SweTasks
from turnwise.environments.swe.hidden import altered, failing, function_of, without
from turnwise.environments.swe.kind import KIND
from turnwise.environments.swe.mutations import Edit, chosen, edits_of, planted
from turnwise.environments.swe.packages import Pinned, package_named
from turnwise.environments.swe.repository import MOST_BYTES, is_source, read_sdist
from turnwise.environments.swe.suite import run_suite
from turnwise.environments.swe.task import swe_task
from turnwise.environments.tasks import read_tasks, written
from turnwise.errors import DataError

SOURCE = '''def f(a, é=1):
    """a < b"""
    if not a and é <= 2 is not None:
        return f"{a + 1}"
    return a + é
'''


def test_faults_are_planted_where_the_source_says() -> None:
    edits = edits_of("f.py", SOURCE)
    assert [(e.place, e.old, e.new) for e in edits] == [
        ((1, 11), "1", "2"),
        ((3, 7), "not ", ""),
        ((3, 13), "and", "or"),
        ((3, 22), "2", "3"),
        ((5, 13), "+", "-"),
    ]
    assert planted(SOURCE, edits[2:]).splitlines()[2] == "    if not a or é <= 3 is not None:"
    assert edits_of("g.py", "def f(:") == []


def test_edits_that_do_not_fit_are_refused() -> None:
    for edit in (Edit("f.py", (9, 0), "1", "2"), Edit("f.py", (1, 0), "+", "-"), Edit("f.py", (1, 0), "def", "dof")):
        with pytest.raises(DataError):
            planted(SOURCE, [edit])


def test_chosen_edits_do_not_touch_and_go_by_the_seed() -> None:
    edits = edits_of("f.py", SOURCE)
    found = [chosen(edits, 3, Random(seed)) for seed in range(40)]
    assert found == [chosen(edits, 3, Random(seed)) for seed in range(40)]
    assert {len(each) for each in found} == {1, 2, 3}
    with pytest.raises(DataError, match="nothing"):
        chosen([], 3, Random(0))


def test_hidden_tests_are_cut_and_others_stay() -> None:
    files = {way: text.encode() for way, text in FILES.items()}
    cut = without(files, {function_of(test) for test in FAILS})["tests/test_adder.py"].decode()
    assert "def test_add" not in cut and "test_of_unittest" not in cut and "parametrize" not in cut
    assert "class OfAdd(unittest.TestCase):\n    pass\n" in cut and "def test_most" in cut
    with pytest.raises(DataError, match="no file defines"):
        without(files, {"tests/test_adder.py::OfAdd::test_gone"})


def test_a_function_that_is_inherited_is_cut_where_it_stands() -> None:
    base = b"class Base:\n    def test_a(self):\n        assert 1 == 1\n"
    files = {"tests/__init__.py": base, "tests/test_b.py": b"from tests import Base\nclass TestB(Base):\n    x = 1\n"}
    cut = without(files, {"tests/test_b.py::TestB::test_a"})
    assert cut["tests/__init__.py"] == b"class Base:\n    pass\n" and cut["tests/test_b.py"] == files["tests/test_b.py"]


def test_changed_tests_fail_on_the_right_sources(adder: Pinned, tmp_path: Path) -> None:
    files = {way: text.encode() for way, text in FILES.items()}
    names = {function_of(test) for test in (*FAILS, "tests/test_adder.py::test_none_of_none")}
    for changed in (failing(files, names), altered(files, set(ALTERED))):
        ran = run_suite(changed, sorted(ALTERED), ".", tmp_path)
        assert ran.passed == frozenset() and set(ran.failed) == set(FAILS)
    assert run_suite(files, sorted(ALTERED), ".", tmp_path).passed == set(FAILS)


def test_what_is_a_source_and_what_is_of_the_tests() -> None:
    ours = (
        "a/b.py",
        "a/tests/c.py",
        "a/conftest.py",
        "a/test_d.py",
        "a/e_test.py",
        "a/f.so",
        "b.py",
        "ab/g.py",
        "a/h.pth",
    )
    assert [way for way in ours if is_source(way, ("a",))] == ["a/b.py"]


def test_archives_are_read_with_suspicion(monkeypatch: pytest.MonkeyPatch) -> None:
    odd = {"../out.py": "", "adder/x.py": "", ".github/a.yml": "", "adder.egg-info/PKG-INFO": "", "AGENTS.md": "do"}
    assert dict(read_sdist(sdist(odd), ("adder",)).files) == {"adder/x.py": b""}
    for content, tops in (
        (b"no archive", ("adder",)),
        (sdist(FILES), ("elsewhere",)),
        (sdist(FILES)[:200], ("adder",)),
    ):
        with pytest.raises(DataError):
            read_sdist(content, tops)
    with pytest.raises(DataError, match=f"{MOST_BYTES >> 20} MB"):
        read_sdist(sdist({"adder/big.py": "#" * (MOST_BYTES + 1)}), ("adder",))


@pytest.mark.parametrize(
    "change",
    [
        {"package": "numpy"}, {"version": "0.9"}, {"edits": []}, {"edits": [{"way": "a"}]}, {"fail_to_pass": []},
        {"pass_to_pass": "all"}, {"python": 3}, {"more": 1},
        {"edits": [{"way": "a.py", "place": [1, 0], "old": "a", "new": "b\nc"}]},
    ],
)  # fmt: skip
def test_a_task_that_is_wrong_is_refused(task: Task, change: dict[str, object]) -> None:
    with pytest.raises(DataError):
        swe_task({**task.data, **change})


def test_a_task_of_another_python_or_of_lost_sources_is_no_reward(task: Task, tmp_path: Path) -> None:
    config = load_config(None, {"home": tmp_path / "home"})
    older = dataclasses.replace(task, data={**task.data, "python": "3.1"})
    with pytest.raises(InfrastructureFailure, match=r"made with Python 3\.1,"):
        KIND.make(tmp_path / "a", config).reset(older)
    (packages.pytest_folder().parent / "adder-1.0.tar.gz").write_bytes(b"")
    with pytest.raises(InfrastructureFailure, match="turnwise tasks swe build"):
        KIND.make(tmp_path / "b", config).reset(task)


def test_a_package_whose_tests_show_a_fault_gives_a_task(adder: Pinned, tmp_path: Path) -> None:
    *dropped, made = SweTasks(adder, tmp_path / "at").make(1, 1)
    assert isinstance(made, Task) and all(isinstance(each, Dropped) for each in dropped)
    (tmp_path / "tasks").write_text(written(made))
    assert read_tasks(tmp_path / "tasks") == [made]
    assert "->" not in made.prompt and str(made.data["edits"]) not in made.prompt


def test_a_package_without_a_green_test_is_said(adder: Pinned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        building, "read_package", lambda package: read_sdist(sdist(FILES | {"adder/__init__.py": "1/0"}), ("adder",))
    )
    with pytest.raises(DataError, match="no test of adder passes here"):
        SweTasks(adder, tmp_path)


@pytest.mark.long
@pytest.mark.slow
def test_tasks_of_a_real_package_are_built_alike_and_are_sound(inflection: Pinned, tmp_path: Path) -> None:
    for name in ("one", "two"):
        asked = ["tasks", "swe", "build", "--packages", "inflection", "--seeds", "1", "--out", str(tmp_path / name)]
        done = CliRunner().invoke(app, asked)
        assert done.exit_code == 0, (done.output, done.exception)
    assert (tmp_path / "one" / "tasks.jsonl").read_bytes() == (tmp_path / "two" / "tasks.jsonl").read_bytes()
    for agent, mean in (("oracle", "1.000"), ("nothing", "0.000")):
        played = ["rollout", str(tmp_path / "one" / "tasks.jsonl"), "--agent", agent, "--group", "1"]
        done = CliRunner().invoke(app, [*played, "--home", str(tmp_path / "home")])
        assert done.exit_code == 0 and f"mean reward {mean} of 1" in done.output, done.output


def test_the_table_of_packages_is_whole() -> None:
    for name in packages.packages():
        package = package_named(name)
        assert package.file.endswith(f"-{package.version}.tar.gz") and len(package.sha256) == 64 and package.sources
    assert len(packages.packages()) >= 15 and json.loads(packages.TABLE.read_text())["pytest"]
