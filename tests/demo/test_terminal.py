"""The demo of the terminal: figures by value, and the whole of it at a real server with a model that knows nothing."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from tests.environments.test_terminal import HOLDS
from tests.support.models import make_tiny_model
from turnwise.cli.main import app
from turnwise.config import load_config
from turnwise.demo.terminal import recipe
from turnwise.demo.terminal.figures import TerminalExam, by_family, change, round_played, share
from turnwise.demo.terminal.play import run_terminal_demo
from turnwise.demo.terminal.report import TerminalReport, as_data, as_markdown, write
from turnwise.environments.base import Task
from turnwise.environments.reports.episodes import Episode, shown


def episode(task: str, reward: float | None, steps: int = 2, said: str = "ls") -> Episode:
    messages: list[dict[str, Any]] = [{"role": "system", "content": "s"}, {"role": "user", "content": "p"}]
    return Episode(Task(task, "terminal", "p"), reward, steps, [*messages, {"role": "assistant", "content": said}])


def test_shares_are_of_tasks_and_the_machines_failures_are_none() -> None:
    tries = [episode("a-1-0", 1.0), episode("a-1-0", 0.0), episode("b-1-0", 1.0), episode("b-1-0", None)]
    found = share(tries)
    assert found is not None and (found.mean, found.n) == (0.75, 2) and 0.5 <= found.ci95[0] <= 0.75 <= found.ci95[1]
    assert share([episode("a-1-0", None)]) is None
    assert by_family(tries) == {"a": 0.5, "b": 1.0}


def test_a_change_is_paired_by_task() -> None:
    before = [episode("a-1-0", 0.0), episode("b-1-0", 1.0), episode("c-1-0", 1.0)]
    found = change(before, [episode("a-1-0", 1.0), episode("b-1-0", 1.0), episode("d-1-0", 1.0)])
    assert found is not None and (found.mean, found.n) == (0.5, 2)
    assert change(before, [episode("d-1-0", 1.0)]) is None


def test_a_round_counts_the_groups_that_differ() -> None:
    tries = [episode("a-1-0", r) for r in (0.0, 1.0)] + [episode("b-1-0", 1.0)] * 2
    found = round_played(3, tries, 7, 1.0)
    assert found is not None and (found.solved, found.mixed, found.groups, found.version) == (0.75, 1, 2, 7)


def test_three_episodes_are_shown() -> None:
    best, worst = episode("a-1-0", 1.0, 1, "a long command"), episode("b-1-0", 0.0, 9)
    usual = [episode(f"c-1-{i}", 1.0, 2) for i in range(5)]
    found = shown([*usual, worst, best, episode("d-1-0", None)])
    assert found["best"] == best and found["worst"] == worst and found["typical"].task.id.startswith("c")
    assert shown([]) == {} and set(shown([worst])) == {"worst", "typical"}


def test_the_report_says_what_was_measured(tmp_path: Path) -> None:
    report = TerminalReport("m", 0, solutions=3, seconds={"rounds": 2.0}, notes=["a note"])
    report.exams = [
        TerminalExam("sft", "1", [episode("a-1-0", 0.0)], [episode("a-1-0", 0.0)], [episode("z-1-0", 0.0)]),
        TerminalExam("rl", "4", [episode("a-1-0", 1.0, said="```bash\ntac\n```")], [], [episode("z-1-0", None)]),
    ]
    text, data = as_markdown(report), as_data(report)
    assert "| sft → rl | +1.00 (+1.00 to +1.00) | – | – |" in text and "- a note" in text and "```bash\ntac" in text
    assert data["exams"]["rl"]["unseen"] is None and data["failures"] == [""]
    write(report, tmp_path)
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert len((tmp_path / "episodes.jsonl").read_text().splitlines()) == 5


def test_no_task_is_shown_tried_and_examined() -> None:
    begins = (recipe.FIRST_SHOWN, recipe.FIRST_TRIED, recipe.FIRST_EXAMINED)
    ids = [{t.id for t in recipe.tasks_for(recipe.SEEN, first, 20, seed)} for first in begins for seed in (0, 1, 2)]
    assert sum(map(len, ids)) == len(set[str]().union(*ids))
    assert not set(recipe.SEEN) & set(recipe.UNSEEN)


@pytest.mark.parametrize("asked", [["--stream", "swe"], ["--rounds", "2"], ["--stream", "terminal", "--skills"]])
def test_what_does_not_go_together_is_said(asked: list[str]) -> None:
    done = CliRunner().invoke(app, ["demo", *asked])
    assert done.exit_code != 0 and "--stream" in f"{done.output} {done.exception}"


@pytest.mark.slow
@pytest.mark.skipif(not HOLDS, reason="no bubblewrap here (make sandbox)")
def test_the_whole_of_it_with_a_model_that_knows_nothing(
    tmp_path: Path, model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is solved, so nothing is learned from tries: the version of the fine-tuning is examined three times."""
    monkeypatch.setattr(recipe, "SEEN", ("sort-lines", "copy-file"))
    monkeypatch.setattr(recipe, "UNSEEN", ("join-files",))
    model, told = make_tiny_model(tmp_path, model_dir), io.StringIO()
    out = tmp_path / "out"
    found = run_terminal_demo(out, str(model), 0, True, 1, Console(file=told, width=120))
    assert [(exam.name, exam.version) for exam in found.exams] == [
        ("base", "base"), ("sft", "v1"), ("rl", "v1"), ("control", "v1"),
    ]  # fmt: skip
    assert found.failures == [] and [share(exam.sampled).mean for exam in found.exams] == [0.0] * 4  # pyright: ignore[reportOptionalMemberAccess]
    assert [(r.mixed, r.groups) for r in found.rounds] == [(0, 4)] and found.solutions == 4
    figures = json.loads((out / "report.json").read_text())
    assert set(figures["seconds"]) == {f"examination: {exam.name}" for exam in found.exams} | {
        "solutions", "fine-tuning", "rounds of GRPO",
    }  # fmt: skip
    assert load_config(None, {"home": out / "home"}).streams.terminal.method == "grpo"
    assert "Written to" in told.getvalue()
