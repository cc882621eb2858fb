"""`turnwise eval web`: a suite is played by the served model through the real gateway, and its figures are kept."""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.conftest import Running
from tests.environments.browser.conftest import needs_browser, site
from tests.support.thinker import thinking_gateway
from turnwise.cli.main import app
from turnwise.environments.browser.web_task import WINDOW
from turnwise.errors import ConfigError
from turnwise.judges.trajectory.collecting import verdicts_in
from turnwise.messages import LEFT_OUT
from turnwise.trajectories.record import SavedTrajectory, saved_trajectories, written_trajectory
from turnwise.trajectories.trail import ShownPage, Trail, TrailStep

__all__ = ["site"]
pytestmark = [needs_browser, pytest.mark.slow]
RIGHT = "I have already tried the menu.\n```web\ndone 42\n```"


def suite(tmp_path: Path, site: str, *tasks: str) -> Path:
    rows = [{"id": task, "environment": "web", "prompt": "Say 42.", "url": site, "answer": "42"} for task in tasks]
    (tmp_path / "suite.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path / "suite.jsonl"


def evaluated(gateway: Running, tasks: Path, *more: str) -> Result:
    home = ["--home", str(gateway.config.home), "--out", str(tasks.parent / "eval"), "--form", "blocks"]
    return CliRunner().invoke(app, ["eval", "web", str(tasks), *home, "--parallel", "1", *more])


def report(tasks: Path) -> dict[str, Any]:
    return json.loads((tasks.parent / "eval" / "report.json").read_text())


def test_a_suite_is_played_once_measured_and_nothing_of_it_is_learned(
    gateway: Running, site: str, tmp_path: Path
) -> None:
    answers = iter([RIGHT, "```web\ndone 41\n```"])
    gateway.stub.reply = lambda prompt: next(answers)
    tasks = suite(tmp_path, site, "a", "b")
    done = evaluated(gateway, tasks)
    assert done.exit_code == 0, done.output
    figures = report(tasks)["figures"]
    assert (figures["success"]["hits"], figures["success"]["of"]) == (1, 2)
    assert figures["ended"] == {"success": 1, "wrong": 1}
    assert figures["reasoning"]["signs"]["history"]["answers"] == 1
    assert figures["cost"]["policy_prompt_tokens"] > 0
    with gateway.journal.store.reading() as c:
        kinds = c.exec_driver_sql("SELECT DISTINCT kind FROM turns").scalars().all()
        groups = c.exec_driver_sql("SELECT count(*) FROM task_groups").scalar_one()
    assert (kinds, groups) == (["side"], 0)
    again = evaluated(gateway, tasks)
    assert again.exit_code == 0 and "50.0% (1 of 2" in again.output, "the same folder plays nothing again"


def test_a_run_that_was_stopped_goes_on(gateway: Running, site: str, tmp_path: Path) -> None:
    gateway.stub.reply = lambda prompt: RIGHT
    tasks = suite(tmp_path, site, "a", "b", "c")
    assert evaluated(gateway, tasks, "--repeats", "2").exit_code == 0
    kept = tasks.parent / "eval" / "trajectories.jsonl"
    first = [saved.session for saved in saved_trajectories(kept)]
    assert len(first) == 6
    lines = kept.read_text().splitlines(keepends=True)
    kept.write_text("".join(lines[:4]) + lines[4][:-9])  # as if it had been killed while it wrote the fifth
    assert evaluated(gateway, tasks, "--repeats", "2").exit_code == 0
    assert sorted(saved.session for saved in saved_trajectories(kept)) == sorted(first)
    assert report(tasks)["figures"]["success"]["of"] == 6
    other = evaluated(gateway, tasks)
    assert other.exit_code != 0 and "another repeats" in str(other.exception)
    shutil.rmtree(tasks.parent / "eval")


def test_a_site_that_is_down_is_aborted_and_counted_apart(gateway: Running, site: str, tmp_path: Path) -> None:
    gateway.stub.reply = lambda prompt: RIGHT
    tasks = suite(tmp_path, site, "up")
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]  # where nothing listens any more
    gone = {"id": "down", "environment": "web", "prompt": "Say 42.", "url": f"http://127.0.0.1:{port}", "answer": "42"}
    tasks.write_text(f"{tasks.read_text()}\n{json.dumps(gone)}")
    assert evaluated(gateway, tasks).exit_code == 0
    figures = report(tasks)["figures"]
    assert (figures["success"]["share"], figures["success_without_aborted"]["share"]) == (0.5, 1.0)
    assert figures["ended"] == {"success": 1, "aborted: network": 1}


def test_an_oracle_says_what_a_suite_is_worth_without_a_server(site: str, tmp_path: Path) -> None:
    tasks = suite(tmp_path, site, "a")
    asked = ["eval", "web", str(tasks), "--home", str(tmp_path / "home"), "--out", str(tmp_path / "eval")]
    assert CliRunner().invoke(app, [*asked, "--agent", "nothing"]).exit_code == 0
    assert report(tasks)["figures"]["ended"] == {"no answer": 1}


@pytest.mark.parametrize("told", ["[]", "{}", '{"run": 5}', '{"run": "../x"}', '{"run": "eval-1"'])
def test_a_folder_of_something_else_is_not_gone_on_with(site: str, tmp_path: Path, told: str) -> None:
    tasks = suite(tmp_path, site, "a")
    (tmp_path / "eval").mkdir()
    (tmp_path / "eval" / "run.json").write_text(told)
    asked = ["eval", "web", str(tasks), "--home", str(tmp_path / "home"), "--agent", "nothing", "--out"]
    done = CliRunner().invoke(app, [*asked, str(tmp_path / "eval")])
    assert isinstance(done.exception, ConfigError) and "give another --out" in str(done.exception)
    done = CliRunner().invoke(app, [*asked, str(tasks)])
    assert isinstance(done.exception, ConfigError) and "cannot be made a folder" in str(done.exception)


def test_the_gateway_of_a_home_is_its_judge_where_none_is_named(gateway: Running, tmp_path: Path) -> None:
    """What the served base model says is a verdict, and its turns are side turns, which nobody learns from."""
    trail = Trail("Say 42.", (TrailStep("", ("done(answer=42)",), ("Succeeded",)),), (ShownPage("p", b"png"),), "42")
    saved = SavedTrajectory("one", "t", "web", "Say 42.", 1.0, details={"ended": "agent"}, trail=trail)
    (tmp_path / "run.jsonl").write_text(f"{written_trajectory(saved)}\n")
    gateway.stub.reply = lambda prompt: "It was said.\nVerdict: NOT SUCCESS"
    asked = ["judge", "collect", str(tmp_path / "run.jsonl"), "--out", str(tmp_path / "v.jsonl")]
    done = CliRunner().invoke(app, [*asked, "--as", "small", "--home", str(gateway.config.home)])
    assert done.exit_code == 0, done.output
    (verdict,) = verdicts_in(tmp_path / "v.jsonl")
    assert (verdict.judge, verdict.success, verdict.label) == ("small", False, True)
    assert verdict.tokens[0] > 0
    with gateway.journal.store.reading() as c:
        assert c.exec_driver_sql("SELECT DISTINCT kind FROM turns").scalars().all() == ["side"]


def test_a_run_is_played_by_the_version_that_served_when_it_began(gateway: Running, site: str, tmp_path: Path) -> None:
    gateway.stub.reply = lambda prompt: RIGHT
    tasks = suite(tmp_path, site, "a", "b")
    done = evaluated(gateway, tasks)
    assert done.exit_code == 0 and "played by turnwise@base" in done.output
    assert report(tasks)["version"] == "turnwise@base"
    begun = json.loads((tasks.parent / "eval" / "run.json").read_text())
    (tasks.parent / "eval" / "trajectories.jsonl").unlink()
    (tasks.parent / "eval" / "run.json").write_text(json.dumps(begun | {"run": "eval-9", "version": "turnwise@v9"}))
    assert evaluated(gateway, tasks).exit_code == 0
    assert report(tasks)["version"] == "turnwise@v9"
    assert report(tasks)["figures"]["success_without_aborted"]["of"] == 0, "there is no such version"
    assert [model for *_, model in gateway.stub.sampled] == ["base", "base"], "and what serves now is not asked instead"
    other = evaluated(gateway, tasks, "--set", "streams.web.max_steps=3")
    assert other.exit_code != 0 and "another max_steps" in str(other.exception)


def test_a_model_that_sees_nothing_is_shown_text_and_that_is_said(gateway: Running, site: str, tmp_path: Path) -> None:
    gateway.stub.reply = lambda prompt: RIGHT
    done = evaluated(gateway, suite(tmp_path, site, "a"), "--observe", "screenshot")
    assert done.exit_code == 0 and "sees no pictures: 1 tasks are shown as text" in done.output
    assert report(tmp_path / "suite.jsonl")["figures"]["success"]["hits"] == 1


def test_pages_are_shown_as_they_are_in_training(site: str, tmp_path: Path) -> None:
    tasks, window = suite(tmp_path, site, "a"), WINDOW
    with thinking_gateway(tmp_path / "thinks", window) as thinking:
        thinking.thinker.says = lambda step: f"saw {step}\n</think>\n\n```web\nscroll down\n```"
        sets = ("max_steps=4", "keep_pictures=2", "pictures=true")
        asked = ["eval", "web", str(tasks), "--home", str(thinking.config.home), "--out", str(tmp_path / "eval")]
        asked += [
            "--form",
            "blocks",
            "--set",
            f"model.path={thinking.config.model.path}",
            *(word for one in sets for word in ("--set", f"streams.web.{one}")),
        ]
        done = CliRunner().invoke(app, asked)
        assert done.exit_code == 0, done.output
        shown = [thinking.thinker.prompt(step) for step in range(4)]
    assert [one.count(LEFT_OUT) for one in shown] == [0, 0, 1, 2]
