"""What a run of rollouts leaves to be read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.environments.test_rollout import needs_box
from turnwise.cli.main import app
from turnwise.environments.base import Task
from turnwise.environments.reports.run import MOST_BYTES, RunReport
from turnwise.environments.rollout import Ended, Play
from turnwise.errors import DataError


def ended(number: int, reward: float | None, steps: int, **more: Any) -> Ended:
    stream = more.pop("stream", "terminal")
    play = Play("r", Task(f"t-{number}", stream, "p"), 0, 1)
    return Ended(play, reward, more.pop("failure", None), steps, **more)


def said(text: str) -> list[dict[str, Any]]:
    call = {"id": "c", "type": "function", "function": {"name": "run", "arguments": json.dumps({"command": text})}}
    first = [{"role": "system", "content": "the rules"}, {"role": "user", "content": "the task"}]
    return [*first, {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": f"output of {text}"}]  # fmt: skip


def test_it_has_figures_a_curve_and_three_trajectories_of_each_stream(tmp_path: Path) -> None:
    report = RunReport(tmp_path / "run", "r")
    report.add(ended(0, 1.0, 1), said("the best"))
    for number in range(1, 6):
        report.add(ended(number, 1.0, 3), said(f"usual {number}"))
    report.add(ended(6, 0.0, 9), said("the worst"))
    report.add(ended(7, 0.5, 9), said("a better one"))
    report.add(ended(8, None, 0, failure="no machine"), [])
    report.add(ended(9, None, 0, open=True), said("not played"))
    report.add(ended(10, 0.25, 2, stream="swe", cut_off="time"), said("```` of an agent\n## The best of all"))
    page = report.write().read_text()
    assert "| terminal | 9 | 9 | 0.812 | 6 of 8 | 3.8 | 0 | 1 |" in page
    assert "| swe | 1 | 1 | 0.250 | 0 of 1 | 2.0 | 1 | 0 |" in page
    heads = [line for line in page.splitlines() if line.startswith("## The")]
    assert [head.split(":")[0] for head in heads if "````" not in head][:3] == [
        "## The best of terminal", "## The worst of terminal", "## The typical of terminal"
    ]  # fmt: skip
    assert "## The best of terminal: t-0, reward 1" in heads and "## The worst of terminal: t-6, reward 0" in heads
    assert "output of the worst" in page and "the task" in page and "the rules" not in page and "usual" in page
    assert "not played" not in page and "t-9" not in page
    assert page.count("````") % 2 == 0
    assert (tmp_path / "run" / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_that_goes_on_adds_to_its_own_and_repeats_nothing(tmp_path: Path) -> None:
    report = RunReport(tmp_path, "r")
    report.add(ended(0, 1.0, 1), said("one"))
    with (tmp_path / "episodes.jsonl").open("ab") as lines:
        lines.write(b'{"session": "cut off in the mid')
    again = RunReport(tmp_path, "r")
    again.add(ended(0, 1.0, 0), [])
    again.add(ended(1, 0.0, 2), said("two"))
    assert "| terminal | 2 | 2 | 0.500 |" in again.write().read_text()


def test_what_is_very_long_and_pictures_are_not_kept_whole(tmp_path: Path) -> None:
    report = RunReport(tmp_path, "r")
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 1000}}
    long = [{"role": "user", "content": "x" * (MOST_BYTES // 4)} for _ in range(12)]
    report.add(ended(0, 1.0, 1), [*said("a"), {"role": "user", "content": [picture]}, *long])
    [line] = (tmp_path / "episodes.jsonl").read_text().splitlines()
    assert len(line) < 1.5 * MOST_BYTES and "AAAA" not in line
    report.write()


def test_a_run_of_nothing_has_a_page_as_well(tmp_path: Path) -> None:
    assert RunReport(tmp_path, "r").write().read_text().startswith("# Run r")
    assert not (tmp_path / "curve.png").exists()


@needs_box
@pytest.mark.parametrize(("agent", "reward"), [("oracle", 1), ("nothing", 0)])
def test_each_run_says_where_its_report_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agent: str, reward: int
) -> None:
    lowered: list[int] = []
    monkeypatch.setattr(os, "nice", lambda by: lowered.append(by) or 0)
    task = {"id": "t", "prompt": "Write b to a.", "expect": {"a": "b"}, "oracle": ["echo b > a"]}
    (tmp_path / "tasks.jsonl").write_text(json.dumps(task))
    asked = ["rollout", str(tmp_path / "tasks.jsonl"), "--agent", agent, "--group", "2", "--run", "one"]
    done = CliRunner().invoke(app, [*asked, "--home", str(tmp_path / "home")])
    assert done.exit_code == 0, done.output
    page = (tmp_path / "home" / "rollouts" / "one" / "report.md").read_text()
    assert "rollouts/one/report.md" in done.output.replace("\n", "") and f"| t | {reward} {reward} |" in page
    assert ("echo b > a" in page) == (agent == "oracle")
    assert sum(lowered) == 10, "a run takes the processor from a person's answers"


@needs_box
def test_an_oracle_of_a_task_without_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").write_text(json.dumps({"id": "t", "prompt": "Write b to a.", "expect": {"a": "b"}}))
    asked = ["rollout", str(tmp_path / "tasks.jsonl"), "--agent", "oracle", "--home", str(tmp_path / "home")]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code != 0
    assert isinstance(done.exception, DataError), done.output
    assert "the task t names no commands that solve it" in str(done.exception)
