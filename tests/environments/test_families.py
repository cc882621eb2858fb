"""Families of terminal tasks: each is solved by its oracle, by nothing else that is tried, and is the same again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.environments.test_terminal import HOLDS
from turnwise.cli.main import app
from turnwise.environments.base import Task
from turnwise.environments.tasks import read_tasks, written
from turnwise.environments.terminal.checks import TaskCheck
from turnwise.environments.terminal.families import table
from turnwise.environments.terminal.families.base import Family
from turnwise.environments.terminal.families.table import FAMILIES, left_out, missing, named, tasks_of
from turnwise.environments.terminal.files_task import FilesTask, files_task
from turnwise.errors import DataError
from turnwise.sandbox.box import Box
from turnwise.sandbox.folder import GuestFolder

needs_box = pytest.mark.skipif(not HOLDS, reason="no bubblewrap here (make sandbox)")
LEVELS = (1, 2, 3)
WHOLE_SEEDS = range(1, 5)


def family_of(name: str) -> Family:
    if lacking := missing(FAMILIES[name]):
        pytest.skip(f"{', '.join(lacking)} is not here (make sandbox)")
    return FAMILIES[name]


@needs_box
@pytest.mark.parametrize("name", FAMILIES)
def test_the_oracle_alone_solves_it(tmp_path: Path, name: str) -> None:
    for level in LEVELS:
        holds(family_of(name).task(0, level), tmp_path / str(level))


@needs_box
@pytest.mark.long
@pytest.mark.parametrize("name", FAMILIES)
def test_the_oracle_alone_solves_it_with_more_seeds(tmp_path: Path, name: str) -> None:
    for level in LEVELS:
        for seed in WHOLE_SEEDS:
            holds(family_of(name).task(seed, level), tmp_path / f"{level}-{seed}")


def holds(task: Task, folder: Path) -> None:
    """Nothing done is no solution, the oracle is one, and it is none once anything is wrong that is looked at."""
    made = files_task(task.data)
    folder.mkdir()
    made.set_up(folder)
    assert not made.check(folder).passed, f"{task.id} is solved by nothing"
    for command in made.oracle:
        Box(GuestFolder(folder)).run(command)
    assert made.check(folder).passed, f"{task.id}: {made.check(folder).reason}"
    for check in made.checks:
        if check.kind != "git":
            with spoilt(folder / check.way, check):
                assert not made.check(folder).passed, f"{task.id}: {check.way} may be anything"
    assert made.check(folder).passed


@pytest.mark.parametrize("name", FAMILIES)
def test_a_prompt_has_no_name_left_that_was_to_be_filled_in(name: str) -> None:
    for level in LEVELS:
        for seed in range(8):
            prompt = FAMILIES[name].task(seed, level).prompt
            assert not re.search(r"\{[a-z_]\w*\}", prompt), prompt


@contextmanager
def spoilt(place: Path, check: TaskCheck) -> Iterator[None]:
    """The right name with something wrong there."""
    if check.kind == "gone":
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("still here\n")
        yield
        place.unlink()
    elif check.kind == "mode":
        mode = place.stat().st_mode
        place.chmod(mode ^ 0o022)
        yield
        place.chmod(mode)
    elif check.kind == "link":
        target = place.readlink()
        place.unlink()
        place.write_text("a copy\n")
        yield
        place.unlink()
        place.symlink_to(target)
    else:
        mode, content = place.stat().st_mode, place.read_bytes()
        place.chmod(0o600)
        place.write_bytes(b"wrong\n" + content[:-1])
        yield
        place.write_bytes(content)
        place.chmod(mode)


@needs_box
@pytest.mark.parametrize("name", [name for name, family in FAMILIES.items() if family.theme == "git"])
def test_a_repository_begun_anew_is_no_solution(tmp_path: Path, name: str) -> None:
    task = files_task(family_of(name).task(0, 3).data)
    task.set_up(tmp_path)
    begin = "rm -rf .git; git init -q -b main . && git config user.name a && git config user.email b && git add -A"
    Box(GuestFolder(tmp_path)).run(f"{begin} && git commit -q --allow-empty -m wrong")
    assert not task.check(tmp_path).passed


@pytest.mark.parametrize("name", FAMILIES)
def test_a_seed_is_a_task_and_seeds_are_different_ones(name: str) -> None:
    family = FAMILIES[name]
    for level in LEVELS:
        assert written(family.task(3, level)) == written(family.task(3, level))
        assert len({written(family.task(seed, level)) for seed in range(20)}) == 20
    prompts = {family.task(seed, level).prompt for seed in range(20) for level in LEVELS}
    assert len(prompts) >= 8, "another seed asks for something else"


def test_there_are_forty_families_and_more_over_all_themes() -> None:
    assert len(FAMILIES) >= 40
    themes = {"files", "text", "permissions", "archives", "git", "processes", "data"}
    assert {family.theme for family in FAMILIES.values()} == themes


def test_families_whose_programs_are_missing_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "INSIDE", "/nowhere")
    chosen = named(["sqlite-read", "sort-lines", "json-edit"])
    assert [task.id for task in tasks_of(chosen, range(2), [1])] == ["sort-lines-1-0", "sort-lines-1-1"]
    assert (
        left_out(chosen)
        == "left out, since jq, sqlite3 is not here (`make sandbox` installs it): sqlite-read, json-edit"
    )
    assert left_out(named(["sort-lines"])) is None


def test_the_command_writes_tasks_that_are_read_back(tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    asked = ["tasks", "terminal", "--families", "sort-lines,make-link", "--seeds", "0-2,7", "--difficulty", "1,3"]
    done = CliRunner().invoke(app, [*asked, "--out", str(file)])
    assert done.exit_code == 0 and "16 tasks" in done.output, (done.output, done.exception)
    read = read_tasks(file)
    assert read[0] == FAMILIES["sort-lines"].task(0, 1) and read[-1] == FAMILIES["make-link"].task(7, 3)
    listed = CliRunner().invoke(app, ["tasks", "terminal", "--list"])
    assert listed.exit_code == 0 and all(name in listed.output for name in FAMILIES)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["--families", "sort-line"], "no family 'sort-line'"),
        (["--seeds", "9-0"], "--seeds takes numbers"),
        (["--seeds", "x"], "--seeds takes numbers"),
        (["--seeds", "0-99999999"], "--seeds takes numbers"),
        (["--difficulty", "4"], "--difficulty takes numbers from 1 to 3"),
    ],
)
def test_what_the_command_cannot_do_is_said(tmp_path: Path, asked: list[str], said: str) -> None:
    done = CliRunner().invoke(app, ["tasks", "terminal", *asked, "--out", str(tmp_path / "t")])
    assert done.exit_code != 0 and said in f"{done.output} {done.exception}"
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    "check",
    [
        {"kind": "file", "way": "a"},
        {"kind": "file", "way": "a", "is": 1},
        {"kind": "other", "way": "a", "is": "x"},
        {"kind": "mode", "way": "a", "is": "rwx"},
        {"kind": "sqlite", "way": "a", "is": []},
        {"kind": "file", "way": "a", "is": "x", "asks": "SELECT 1"},
        {"way": "a"},
        "file",
    ],
)
def test_a_check_that_is_none_is_refused(check: object) -> None:
    with pytest.raises(DataError):
        files_task({"checks": [check]})


def test_a_task_without_checks_is_none() -> None:
    with pytest.raises(DataError, match="at least one"):
        files_task({"checks": []})
    assert isinstance(files_task({"checks": [{"kind": "gone", "way": "a"}]}), FilesTask)
