"""The report: the agreed keys, plain words for good and bad results, and a page whose tables do not break."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from rich.console import Console

from turnwise.demo import plot, report
from turnwise.demo.heard import Heard
from turnwise.demo.report import Change, Evaluation, Pair, Point, Report

BASE = Evaluation(0.20, (0.10, 0.30), 36, 0.90, 1.10, 0.02, 70.0, 0.6, 1.0, 0.05)
FINAL = dataclasses.replace(BASE, mean=0.70, ci95=(0.6, 0.8), nll=1.5, nll_with_wish=1.3, words=25.0)

GOOD = Report(
    persona="student",
    method="combined",
    interactions=36,
    seed=1,
    base=BASE,
    final=FINAL,
    control=BASE,
    wish_reference={"nll_with_wish": 1.0, "mean": 0.6},
    rise=Change(0.50, (0.4, 0.6)),
    rise_over_control=Change(0.50, (0.4, 0.6)),
    repetition_change=Change(0.00, (-0.02, 0.02)),
    failed_requests=0,
    versions_published=4,
    seconds=321.0,
    curve=[
        Point("control", 12, 0.2, (0.1, 0.3), 12, "0"),
        Point("learning", 12, 0.2, (0.1, 0.3), 12, "0"),
        Point("learning", 24, 0.5, (0.4, 0.6), 12, "2"),
    ],
    answers=[Pair("How | many?", "1. **a**\n2. b", "It's <3>", 0.25, 1.0)],
    heard=[
        Heard("start with | please", -1, "start with | please", "trained", learned_by=[2]),
        Heard("hm", 0, None, "excluded", "no signal"),
        Heard("and now?", None, None, "judging"),
    ],
)


def test_the_json_has_the_agreed_keys():
    data = json.loads(GOOD.to_json())
    assert {
        "persona", "method", "interactions", "seed", "base", "final", "control", "wish_reference",
        "failed_requests", "versions_published", "seconds", "curve", "answers",
    } <= set(data)  # fmt: skip
    for arm in ("base", "final", "control"):
        assert {"mean", "ci95", "n", "nll", "nll_with_wish", "repetition", "words"} <= set(data[arm])
        assert len(data[arm]["ci95"]) == 2
    assert data["answers"][0]["before"] == "1. **a**\n2. b"


def test_a_good_run_says_learned_and_kept():
    said = " ".join(GOOD.verdict())
    assert "learned the preference" in said
    assert "Language kept" in said
    assert GOOD.faults == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rise": Change(0.05, (-0.05, 0.15))}, "less than the 0.15"),
        ({"rise": Change(-0.2, (-0.3, -0.1))}, "less than the 0.15"),
        ({"rise": Change(0.2, (-0.1, 0.5))}, "its interval includes 0"),
        ({"final": dataclasses.replace(FINAL, nll_with_wish=1.51)}, "Language NOT kept"),
        ({"repetition_change": Change(0.03, (0.01, 0.05))}, "Language NOT kept"),
        ({"repetition_change": Change(0.06, (-0.01, 0.13))}, "Language NOT kept"),
        ({"failed_requests": 3, "failures": ["Timeout: x"]}, "FAULT: 3 requests failed (first: Timeout: x)"),
        ({"versions_published": 0}, "FAULT: no policy version was published"),
    ],
)
def test_a_bad_result_is_said_plainly(change: dict[str, object], said: str):
    worse = dataclasses.replace(GOOD, **change)  # pyright: ignore[reportArgumentType]
    assert said in " ".join(worse.verdict())


def test_only_failed_phases_are_faults_not_a_missing_rise():
    assert dataclasses.replace(GOOD, rise=Change(-0.2, (-0.3, -0.1))).faults == []
    assert len(dataclasses.replace(GOOD, failed_requests=1, versions_published=0).faults) == 2


def test_the_page_keeps_markup_of_answers_visible_and_its_tables_whole():
    page = report.markdown(GOOD)
    row = next(line for line in page.splitlines() if line.startswith("| 1 |"))
    assert row.count(" | ") == 5
    assert r"1. \*\*a\*\*<br>2. b" in row and "&lt;3>" in row and r"How \| many?" in row


def test_everything_is_written_and_shown(tmp_path: Path):
    report.write(GOOD, tmp_path)
    plot.draw(GOOD, tmp_path / "curve.png")
    console = Console(record=True, width=160, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    report.print_table(GOOD, console)
    assert "0.70" in console.export_text()
    assert json.loads((tmp_path / "report.json").read_text())["versions_published"] == 4
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_the_page_shows_what_became_of_the_persons_words():
    page = report.markdown(GOOD)
    assert "| the person | score | wish | what became of it |" in page
    assert "| start with \\| please | -1 | start with \\| please | learned by version 2 |" in page
    assert "| hm | 0 | – | left out: neither praise nor blame nor a wish was heard in it |" in page
    assert "| and now? | – | – | not judged yet |" in page
    assert "became of it" not in report.markdown(dataclasses.replace(GOOD, heard=[]))
