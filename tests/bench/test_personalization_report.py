"""The report of the bench of people, from made-up points: what counts, the figures beside each other, and the curves.

An interval is checked where it can be known by hand. With three runs the mean of a resample is the lowest value once
in 27 times, which is more often than 2.5 %: the interval goes from the lowest to the highest. With one success in four
runs the successes of a resample are binomial (4 draws of 1/4): none in 32 % of them, at most two in 95 %, at most three
in 99.6 %, so the interval goes from 0 to 3/4.
"""

from __future__ import annotations

import json
import struct
from dataclasses import asdict
from pathlib import Path

import pytest

from turnwise.bench.personalization.persons import DEVELOPMENT, Person
from turnwise.bench.personalization.play import Course, Examined
from turnwise.bench.personalization.run import PersonalizationOptions, _draw, _figures, _grid, bench_personalization
from turnwise.bench.report import Figure

CHEERFUL, OTHER = DEVELOPMENT[0], DEVELOPMENT[1]


def point(conversations: int, met: float, told: float | None = None, right: float = 0.5) -> Examined:
    """An examination about the one wish "cheers"; ``told``: what the base model does that is told."""
    knows = {} if told is None else {"cheers": told}
    return Examined(conversations, {"cheers": met}, knows, right, 0.0, 9.0, 8, 0, 1.0)


def runs(arm: str, *met: float, told: float = 0.95, person: Person = CHEERFUL) -> dict[Course, list[Examined]]:
    """A run for each seed: nothing is met at first, and so much after 24 conversations."""
    return {
        Course(person, seed, arm, 3, "model"): [point(0, 0.0, told), point(24, share)] for seed, share in enumerate(met)
    }


def test_a_figure_is_the_mean_over_seeds_from_the_lowest_to_the_highest_of_three() -> None:
    what = "combined: wishes met unasked after 24 conversations"
    assert _figures(runs("combined", 0.3, 0.6, 0.9), ["combined"]) == [
        Figure(what, "0.60 [0.30, 0.90], 3 runs", "aim 0.6", "1.00")
    ]


def test_the_interval_of_one_success_in_four_runs_ends_at_three_quarters() -> None:
    [figure] = _figures(runs("combined", 0.0, 0.0, 0.0, 1.0), ["combined"])
    assert (figure.value, figure.ratio) == ("0.25 [0.00, 0.75], 4 runs", "0.42")


@pytest.mark.parametrize(("told", "counted"), [(0.9, True), (0.89, False)])
def test_a_run_counts_from_nine_in_ten_answers_that_follow_the_wish_when_told(told: float, counted: bool) -> None:
    assert bool(_figures(runs("combined", 0.5, told=told), ["combined"])) is counted


def test_runs_whose_wish_is_not_followed_when_told_pull_no_mean_down() -> None:
    played = runs("combined", 0.8, 0.8) | runs("combined", 0.0, 0.0, told=0.2, person=OTHER)
    assert [f.value for f in _figures(played, ["combined"])] == ["0.80 [0.80, 0.80], 2 runs"]


def test_of_several_wishes_those_that_are_followed_when_told_are_counted() -> None:
    at = Examined(24, {"cheers": 0.4, "brief": 0.0}, {"cheers": 1.0, "brief": 0.3}, 1.0, 0.0, 9.0, 8, 0, 1.0)
    [figure] = _figures({Course(CHEERFUL, 0, "combined", 3, "model"): [at]}, ["combined"])
    assert figure.value == "0.40 [0.40, 0.40], 1 runs"


def test_arms_stand_in_the_order_asked_for_each_with_its_own_runs_and_aims() -> None:
    later = {Course(CHEERFUL, 0, "opd", 6, "model"): [point(0, 0.0, 0.95), point(24, 0.2), point(48, 0.4)]}
    played = runs("control", 0.0, 0.0) | runs("combined", 0.9, 0.9) | later
    figures = _figures(played, ["combined", "opd", "control"])
    assert [(f.what.split(":")[0], f.value, f.beside, f.ratio) for f in figures] == [
        ("combined", "0.90 [0.90, 0.90], 2 runs", "aim 0.6", "1.50"),
        ("opd", "0.20 [0.20, 0.20], 1 runs", "aim 0.6", "0.33"),
        ("opd", "0.40 [0.40, 0.40], 1 runs", "aim 0.8", "0.50"),
        ("control", "0.00 [0.00, 0.00], 2 runs", "aim 0.6", "0.00"),
    ]


def test_the_table_has_a_row_for_each_person_and_arm_with_all_wishes_in_it() -> None:
    played = runs("combined", 0.2, 0.4) | runs("control", 0.0) | runs("combined", 0.1, told=0.3, person=OTHER)
    grid = _grid(played, ["combined", "control"])
    assert grid.header == ["person", "learning", "told", "0", "24"]
    assert grid.rows == [
        [CHEERFUL.name, "combined", "0.95", "0.00 · 0.50", "0.30 · 0.50"],
        [OTHER.name, "combined", "0.30", "0.00 · 0.50", "0.10 · 0.50"],
        [CHEERFUL.name, "control", "0.95", "0.00 · 0.50", "0.00 · 0.50"],
        [OTHER.name, "control", "–", "–", "–"],
    ]


def test_the_curves_are_drawn_to_a_file(tmp_path: Path) -> None:
    file = tmp_path / "curves.png"
    _draw(runs("combined", 0.3, 0.9) | runs("control", 0.0), ["combined", "control"], file)
    drawn = file.read_bytes()
    assert drawn.startswith(b"\x89PNG")
    assert struct.unpack(">II", drawn[16:24]) == (1200, 690)  # 8 by 4.6 inches


def test_played_courses_are_reported_from_their_folder_and_it_is_said_which_of_how_many_each_is(tmp_path: Path) -> None:
    """Points that lie there are not played again, so no server is started and the model need not be there."""
    for course, points in {**runs("combined", 0.5, 0.5), **runs("control", 0.0, 0.0)}.items():
        lines = [json.dumps(asdict(p)) + "\n" for p in points]
        (tmp_path / f"{course.name}.jsonl").write_text("".join(lines), encoding="utf-8")
    options = PersonalizationOptions("model", tmp_path, CHEERFUL.name, "combined,control", seeds=2, updates=3)
    said: list[str] = []
    report = bench_personalization(options, said.append)
    assert said == [
        "1 of 4: model-cheers-combined-0",
        "2 of 4: model-cheers-control-0",
        "3 of 4: model-cheers-combined-1",
        "4 of 4: model-cheers-control-1",
    ]
    assert [f.value for f in report.figures] == ["0.50 [0.50, 0.50], 2 runs", "0.00 [0.00, 0.00], 2 runs"]
    assert (tmp_path / "curves.png").exists()
