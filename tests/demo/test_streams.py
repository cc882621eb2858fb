"""The demos of streams: figures by value, and the whole of it at a real server with a model that knows nothing."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from tests.environments.browser.conftest import needs_browser
from tests.environments.sites.conftest import needs_sites
from tests.environments.test_terminal import HOLDS
from tests.support.models import make_tiny_model
from turnwise.cli.main import app
from turnwise.config import load_config
from turnwise.demo.streams.figures import StreamExam, by_family, change, round_played, share
from turnwise.demo.streams.play import StreamPlay, run_stream_demo
from turnwise.demo.streams.recipe import AS_IT_IS, FIRST_EXAMINED, FIRST_SHOWN, FIRST_TRIED, Switches, read_switches
from turnwise.demo.streams.report import StreamReport, as_data, as_markdown, was_stopped, write
from turnwise.demo.streams.table import STREAMS, stream_recipe
from turnwise.demo.streams.together import as_table, draw_runs, read_runs
from turnwise.demo.streams.tools import SOLVED
from turnwise.environments.base import Task
from turnwise.environments.curation import family_of
from turnwise.environments.reports.episodes import Episode, shown
from turnwise.environments.sites.keepers import status_of
from turnwise.environments.tools.answers import CheckedAnswer
from turnwise.environments.tools.environment import tools_task
from turnwise.errors import ConfigError, DataError


def episode(task: str, reward: float | None, steps: int = 2, said: str = "ls") -> Episode:
    messages: list[dict[str, Any]] = [{"role": "system", "content": "s"}, {"role": "user", "content": "p"}]
    messages.append({"role": "assistant", "content": said})
    return Episode(Task(task, "terminal", "p"), reward, steps, messages)


def report_of(model: str, seconds: dict[str, float] | None = None) -> StreamReport:
    recipe = stream_recipe("terminal")
    return StreamReport(recipe, model, 0, recipe.quick, solutions=3, seconds=seconds or {}, notes=["a note"])


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
    found = round_played(3, tries, 7, 0.5, 1.0)
    assert found is not None and (found.solved, found.mixed, found.groups, found.version) == (0.75, 1, 2, 7)


def test_three_episodes_are_shown() -> None:
    best, worst = episode("a-1-0", 1.0, 1, "a long command"), episode("b-1-0", 0.0, 9)
    usual = [episode(f"c-1-{i}", 1.0, 2) for i in range(5)]
    found = shown([*usual, worst, best, episode("d-1-0", None)])
    assert found["best"] == best and found["worst"] == worst and found["typical"].task.id.startswith("c")
    assert shown([]) == {} and set(shown([worst])) == {"worst", "typical"}


def test_the_report_says_what_was_measured(tmp_path: Path) -> None:
    report = report_of("m", seconds={"rounds": 2.0})
    report.exams = [
        StreamExam("sft", "1", [episode("a-1-0", 0.0)], [episode("a-1-0", 0.0)], [episode("z-1-0", 0.0)]),
        StreamExam("rl", "4", [episode("a-1-0", 1.0, said="```bash\ntac\n```")], [], [episode("z-1-0", None)]),
    ]
    text, data = as_markdown(report), as_data(report)
    assert "| sft → rl | +1.00 (+1.00 to +1.00) | – | – |" in text and "- a note" in text and "```bash\ntac" in text
    assert data["exams"]["rl"]["unseen"] is None and data["failures"] == [""]
    write(report, tmp_path)
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert len((tmp_path / "episodes.jsonl").read_text().splitlines()) == 5


@pytest.mark.parametrize(
    "stream", [pytest.param(name, marks=needs_sites) if name == "sites" else name for name in STREAMS]
)
def test_no_task_is_shown_tried_and_examined(stream: str) -> None:
    recipe = stream_recipe(stream)
    begins = (FIRST_SHOWN, FIRST_TRIED, FIRST_EXAMINED)
    ids = [{t.id for t in recipe.tasks_for(recipe.seen, first, 20, seed)} for first in begins for seed in (0, 1, 2)]
    assert sum(map(len, ids)) == len(set[str]().union(*ids))
    assert not set(recipe.seen) & set(recipe.unseen)


def test_python_answers_the_questions_whose_solutions_are_shown() -> None:
    tools = stream_recipe("tools")
    for task in [task for seed in range(4) for task in tools.tasks_for(tools.seen, FIRST_SHOWN, 5, seed)]:
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(SOLVED[str(task.data["family"])](task.prompt), {})
        wanted = tools_task(task.data)
        assert isinstance(wanted, CheckedAnswer) and wanted.is_right(said.getvalue()), task


def test_a_switch_that_changes_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="--switch"):
        stream_recipe("tools").check_switches(read_switches(["dynamic_sampling=false"]))


def test_a_run_goes_on_as_what_it_was(tmp_path: Path) -> None:
    report = report_of("m", seconds={"rounds": 2.0})
    report.exams = [StreamExam("sft", "v1", [episode("a-1-0", 0.5)], [], [episode("z-1-0", None)])]
    report.warm, report.played, played = "v1", 1, round_played(1, [episode("a-1-0", 1.0)], 2, 3.0, 4.0)
    report.rounds = [played] if played is not None else []
    write(report, tmp_path)
    taken = report_of("m")
    taken.take_up(tmp_path)
    assert as_data(taken) == as_data(report) and taken.exams[0].sampled[0].family == "a"
    assert was_stopped(tmp_path)
    report.exams.append(StreamExam("control", "v1", [], [], []))
    write(report, tmp_path)
    assert not was_stopped(tmp_path) and not was_stopped(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="give --out another folder"):
        report_of("another").take_up(tmp_path)
    with pytest.raises(ConfigError, match="--go-on"):
        taken.take_up(tmp_path / "nowhere")


@pytest.mark.parametrize("text", ['{"played_as": ', "{}", "[]", "null", '"played_as"', "\ufffd"])
def test_a_report_that_is_cut_or_of_something_else_is_told(tmp_path: Path, text: str) -> None:
    write(report_of("m"), tmp_path)
    (tmp_path / "report.json").write_text(text, encoding="utf-8")
    unreadable = text in ('{"played_as": ', "\ufffd")
    assert was_stopped(tmp_path) is unreadable, "else it is another demo's"
    with pytest.raises(ConfigError, match="give --out another folder"):
        report_of("m").take_up(tmp_path)


def test_episodes_that_are_cut_are_told_and_words_may_have_any_line_ends(tmp_path: Path) -> None:
    report = report_of("m")
    report.exams = [StreamExam("sft", "v1", [episode("a-1-0", 0.5, said="one\u2028two\x85three")], [], [])]
    write(report, tmp_path)
    taken = report_of("m")
    taken.take_up(tmp_path)
    assert as_data(taken) == as_data(report)
    lines = (tmp_path / "episodes.jsonl").read_bytes()
    (tmp_path / "episodes.jsonl").write_bytes(lines[:-20])
    with pytest.raises(ConfigError, match="give --out another folder"):
        report_of("m").take_up(tmp_path)


def run_in(folder: Path, seed: int, solved: dict[str, float], switches: Switches = AS_IT_IS) -> Path:
    """A run of the web's demo whose examinations solved this share of two tasks."""
    folder.mkdir()
    recipe = stream_recipe("web")
    report = StreamReport(recipe, "m", seed, recipe.quick, switches, warm="v1", played=1)
    for name, share_ in solved.items():
        tries = [episode(f"a-{i}", share_, said="click 1 2") for i in range(2)]
        report.exams.append(StreamExam(name, "v1", tries, [], []))
    played = round_played(1, [episode("a-1", 1.0)], 2, 3.0, 4.0)
    report.rounds = [played] if played is not None else []
    write(report, folder)
    return folder


def test_runs_are_pooled_by_recipe(tmp_path: Path) -> None:
    one = run_in(tmp_path / "one", 0, {"sft": 0.0, "rl": 1.0})
    two = run_in(tmp_path / "two", 1, {"sft": 0.5, "rl": 0.5})
    other = run_in(tmp_path / "other", 0, {"rl": 0.5}, Switches(sft_epochs=0))
    recipe, runs = read_runs([one, two, other])
    assert [(each.label, list(each.seeds)) for each in runs] == [("as it is", [0, 1]), ("sft_epochs = 0", [0])]
    text = as_table(recipe, runs)
    assert "| sft | 0.25 (0.00 to 0.50) |" in text and "| sft → rl | +0.50 (+0.00 to +1.00) |" in text
    assert "| rl as it is → rl sft_epochs = 0 | -0.50 (-0.50 to -0.50) |" in text, "of seed 0 alone"
    draw_runs(recipe, runs, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(DataError, match="seed 0"):
        read_runs([one, one])
    with pytest.raises(DataError, match="no run"):
        read_runs([tmp_path])


def test_switches_are_read_and_change_what_is_played() -> None:
    told = ["sft_epochs=0", "dynamic_sampling=false", "epochs=4", "steps=2,4", "lr=1e-4"]
    switches, recipe = read_switches(told), stream_recipe("web")
    assert switches == Switches(0, False, 4, (2, 4), 1e-4)
    settings = recipe.settings(recipe.whole, 0, switches)
    stream = settings["streams.web"]
    assert (stream["epochs"], stream["dynamic_sampling"], stream["max_steps"]) == (4, False, 4)
    assert [switches.steps_of(recipe, i, 5) for i in range(5)] == [2, 2, 2, 4, 4]
    assert Switches().steps_of(recipe, 3, 5) == recipe.most_steps and settings["train"]["lr"] == 1e-4


@pytest.mark.parametrize(
    "odd", ["epochs", "epochs=0", "steps=2,x", "dynamic_sampling=maybe", "lr=fast", "votes=1", "colour=1"]
)
def test_an_odd_switch_is_refused(odd: str) -> None:
    with pytest.raises(ConfigError, match="--switch"):
        read_switches([odd])


@pytest.mark.parametrize(
    "asked", [["--stream", "swe"], ["--rounds", "2"], ["--go-on"], ["--stream", "web", "--skills"]]
)
def test_what_does_not_go_together_is_said(asked: list[str]) -> None:
    done = CliRunner().invoke(app, ["demo", *asked])
    assert done.exit_code != 0 and "--stream" in f"{done.output} {done.exception}"


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.skipif(not HOLDS, reason="no bubblewrap here (make sandbox)")
def test_the_whole_of_it_with_a_model_that_knows_nothing(tmp_path: Path, model_dir: Path) -> None:
    """Nothing is solved, so nothing is learned from tries: the version of the fine-tuning is examined three times."""
    recipe = replace(stream_recipe("terminal"), seen=("sort-lines", "copy-file"), unseen=("join-files",))
    model, told = make_tiny_model(tmp_path, model_dir), io.StringIO()
    out = tmp_path / "out"
    options = StreamPlay(out, str(model), 0, quick=True, rounds=1)
    found = run_stream_demo(recipe, options, Console(file=told, width=120))
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


@pytest.mark.slow
@pytest.mark.long
@needs_browser
def test_the_web_goes_on_where_it_was_stopped(tmp_path: Path, model_dir: Path) -> None:
    """Stopped behind the warm start (its second file is gone): what was done is kept, and what was not is played."""
    recipe = replace(stream_recipe("web"), seen=("click-test", "enter-text"), unseen=("click-test-2",))
    out, model = tmp_path / "out", make_tiny_model(tmp_path, model_dir)
    options = StreamPlay(out, str(model), 0, quick=True, rounds=1)
    whole = run_stream_demo(recipe, options, Console(file=io.StringIO()))
    assert [(exam.name, exam.version) for exam in whole.exams] == [
        ("base", "base"), ("sft", "v1"), ("rl", "v1"), ("control", "v1"),
    ]  # fmt: skip
    assert whole.failures == [] and whole.solutions == 4
    told = json.loads((out / "report.json").read_text())
    told["exams"] = {name: told["exams"][name] for name in ("base", "sft")}
    told["rounds"], told["played"] = [], 0
    (out / "report.json").write_text(json.dumps(told))
    shown = (out / "solutions.jsonl").read_bytes()
    with pytest.raises(ConfigError, match="stopped before its end; --go-on goes on with it"):
        run_stream_demo(recipe, options, Console(file=io.StringIO()))
    again = run_stream_demo(recipe, replace(options, go_on=True), Console(file=io.StringIO()))
    assert [(exam.name, exam.version) for exam in again.exams] == [(exam.name, exam.version) for exam in whole.exams]
    assert (out / "solutions.jsonl").read_bytes() == shown and len(shown.splitlines()) == 4
    # Stopped before the fine-tuning, with its conversations lost: they are played again, though the home has those.
    (out / "solutions.jsonl").unlink()
    told["warm"], told["exams"] = "base", {"base": told["exams"]["base"]}
    (out / "report.json").write_text(json.dumps(told))
    once_more = run_stream_demo(recipe, replace(options, go_on=True), Console(file=io.StringIO()))
    assert once_more.exam("sft") is not None and len((out / "solutions.jsonl").read_text().splitlines()) == 4
    with pytest.raises(ConfigError, match="give --out another folder"):
        run_stream_demo(recipe, replace(options, go_on=True, seed=1), Console(file=io.StringIO()))


@pytest.mark.slow
@pytest.mark.long
@needs_browser
@needs_sites
def test_the_sites_run_beside_their_demo_and_end_with_it(tmp_path: Path, model_dir: Path) -> None:
    recipe = replace(stream_recipe("sites"), seen=("wiki-town", "shop-cheapest"), unseen=("wiki-owner",))
    options = StreamPlay(tmp_path / "out", str(make_tiny_model(tmp_path, model_dir)), 0, quick=True, rounds=1)
    found = run_stream_demo(recipe, options, Console(file=io.StringIO()))
    assert found.failures == [] and found.solutions == 2
    assert [exam.version for exam in found.exams] == ["base", "v1", "v1", "v1"]
    lines = (tmp_path / "out" / "solutions.jsonl").read_text().splitlines()
    last = [json.loads(line)["messages"][-1]["tool_calls"][-1]["function"]["name"] for line in lines]
    assert last == ["done", "done"]
    assert status_of(tmp_path / "out" / "home" / "sites", "wiki") is None


def test_tasks_of_a_site_are_of_the_family_that_their_name_says() -> None:
    task = Task("wiki-owner-7", "web", "Who?", {"site": "wiki", "url": "/wiki/Start"})
    assert family_of(task) == "wiki-owner"
