"""The figures of pipelines, against numbers computed by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from turnwise.bench.pipeline.run import bench_pipeline, robustness
from turnwise.cli.main import app
from turnwise.errors import BenchDataError, TurnwiseError
from turnwise.skills.pipeline.runs import PipelineRun, PipelineStage


def run_with(*stages: tuple[str, int, int]) -> PipelineRun:
    """Stages as status, retries and refine cycles."""
    return PipelineRun("p", [PipelineStage(f"s{n}", status, *counts) for n, (status, *counts) in enumerate(stages)])  # pyright: ignore


BEFORE = [run_with(("done", 1, 2), ("done", 0, 2), ("failed", 1, 4), ("skipped", 0, 0))]
AFTER = [run_with(("done", 0, 1), ("done", 0, 1)), run_with(("done", 1, 0), ("done", 0, 2))]


def test_a_set_by_hand() -> None:
    found = robustness(BEFORE)  # 4 stages: 2 retries, 8 cycles, 2 done
    assert (found.runs, found.stages, found.retry_rate, found.cycles, found.completion) == (1, 4, 0.5, 2.0, 0.5)
    assert found.composite == pytest.approx(0.4 * 0.5 + 0.3 * 0.5 + 0.3 / 3)  # 0.45
    found = robustness(AFTER)  # 4 stages: 1 retry, 4 cycles, all done
    assert (found.runs, found.stages, found.retry_rate, found.cycles, found.completion) == (2, 4, 0.25, 1.0, 1.0)
    assert found.composite == pytest.approx(0.4 + 0.3 * 0.75 + 0.3 / 2)  # 0.775


def test_both_sets_beside_each_other() -> None:
    report = bench_pipeline(BEFORE, AFTER)
    assert [(figure.value, figure.beside, figure.ratio) for figure in report.figures] == [
        ("25.0%", "50.0%", "-50.0%"),
        ("1.00", "2.00", "-50.0%"),
        ("100.0%", "50.0%", "+100.0%"),
        ("0.775", "0.450", "+72.2%"),
    ]


def test_a_perfect_set_is_1_and_a_hopeless_one_0() -> None:
    assert robustness([run_with(("done", 0, 0))]).composite == pytest.approx(1.0)
    assert robustness([run_with(("failed", 9, 1_000_000))]).composite == pytest.approx(0.0, abs=1e-6)


def test_nothing_is_divided_by_zero() -> None:
    nothing, something = [run_with(("failed", 0, 0))], [run_with(("done", 1, 1))]
    assert [f.ratio for f in bench_pipeline(nothing, something).figures] == ["from 0", "from 0", "from 0", "-8.3%"]
    assert [f.ratio for f in bench_pipeline(nothing, nothing).figures] == ["±0.0%"] * 4
    with pytest.raises(BenchDataError, match="at least one run"):
        bench_pipeline([], something)


def written(folder: Path, *runs: dict[str, Any]) -> Path:
    folder.mkdir()
    for number, run in enumerate(runs):
        (folder / f"{number}.json").write_text(json.dumps(run), encoding="utf-8")
    return folder


def test_the_command(tmp_path: Path) -> None:
    before = written(
        tmp_path / "before", {"pipeline": "p", "stages": [{"stage": "a", "status": "failed", "retries": 1}]}
    )
    after = written(tmp_path / "after", {"pipeline": "p", "stages": [{"stage": "a", "status": "done"}]})
    page = tmp_path / "page.md"
    done = CliRunner().invoke(app, ["bench", "pipeline", str(before), "--with", str(after), "--write", str(page)])
    assert done.exit_code == 0, done.output
    assert "| composite | 1.000 | 0.300 | +233.3% |" in page.read_text(encoding="utf-8")
    for words in ([str(before)], [str(before), "--with", str(tmp_path / "none")]):
        assert isinstance(CliRunner().invoke(app, ["bench", "pipeline", *words]).exception, TurnwiseError)
