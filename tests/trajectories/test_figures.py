"""The figures of a run, each from trajectories whose figures are known; and trajectories as lines of a file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from turnwise.errors import DataError
from turnwise.trajectories.figures import class_of_failure, how_it_ended, reasoning_figures, run_figures
from turnwise.trajectories.intervals import quantile, wilson
from turnwise.trajectories.reasoning import before_the_call, signs_in
from turnwise.trajectories.record import AnswerCost, SavedTrajectory, saved_trajectories, written_trajectory
from turnwise.trajectories.trail import ShownPage, Trail, TrailStep

TRAIL = Trail("t", (TrailStep("", ("click(x=1)",), ("ok",)),), (ShownPage("p", b"\x00\xff"),), None)
SOLVED = SavedTrajectory(
    "r.a.0",
    "a",
    "web",
    "Do it.",
    1.0,
    steps=3,
    details={"ended": "agent", "answer": "42", "faults": {"site": 2}, "judge_tokens": [50, 5]},
    messages=[
        {"role": "user", "content": "Do it."},
        {"role": "assistant", "content": "I've already tried the search.\n```web\nclick 1 2\n```"},
        {"role": "assistant", "content": "", "tool_calls": []},
    ],
    spent=[AnswerCost(10, 20, "so", b"\x89PNG"), AnswerCost(30, 40)],
    trail=TRAIL,
)
WRONG = replace(SOLVED, session="r.b.0", reward=0.0, steps=5, spent=[], messages=[], details={"ended": "page"})
DOWN = replace(WRONG, session="r.c.0", reward=None, failure="the site http://a.example does not open: x", details={})
RUN = [SOLVED, WRONG, DOWN]


def test_success_is_told_with_and_without_what_was_aborted() -> None:
    found = run_figures(RUN)
    assert (found["success"]["hits"], found["success"]["of"]) == (1, 3)
    assert found["success_without_aborted"]["share"] == 0.5
    assert found["aborted"] == 1
    low, high = found["success"]["ci95"]
    assert low < 1 / 3 < high


def test_lengths_faults_and_cost_are_sums_of_what_was_measured() -> None:
    found = run_figures(RUN)
    assert found["steps"] == {"mean": 4.0, "p50": 3, "p90": 5, "of": 2}
    assert found["response_tokens"]["mean"] == 30.0
    assert found["trajectory_tokens"] == {"mean": 60.0, "p50": 60, "p90": 60, "of": 1}
    assert found["faults_of_calls"] == {"agent": 0, "site": 2, "network": 0}
    cost = found["cost"]
    assert (cost["policy_prompt_tokens"], cost["policy_completion_tokens"]) == (40, 60)
    assert (cost["judge_prompt_tokens"], cost["judge_completion_tokens"]) == (50, 5)


def test_success_is_told_by_level() -> None:
    levels = [replace(SOLVED, level="easy"), replace(WRONG, level="hard"), replace(WRONG, session="d", level="hard")]
    found = run_figures(levels)["success_by_level"]
    assert {level: (rate["hits"], rate["of"]) for level, rate in found.items()} == {"easy": (1, 1), "hard": (0, 2)}


def test_a_run_of_nothing_has_no_figures_and_no_error() -> None:
    found = run_figures([])
    assert found["success"] == {"share": None, "hits": 0, "of": 0, "ci95": None}


@pytest.mark.parametrize(
    ("said", "whose"),
    [
        ("the site http://a does not open: Page.goto: net::ERR_CONNECTION_REFUSED at http://a", "network"),
        ("the site http://a does not open: Timeout 15000ms exceeded.", "site"),
        ("the browser crashed", "browser"),
        ("the browser took longer than 180 s (act)", "browser"),
        ("the gateway cannot be asked: Connection error.", "policy server"),
        ("the judge: the trajectory judge took longer than 120 s", "judge"),
        ("KeyError: 'x'", "machine"),
    ],
)
def test_a_failure_is_somebodys(said: str, whose: str) -> None:
    assert class_of_failure(said) == whose


def test_how_an_episode_ended_is_said_in_a_word() -> None:
    cut, form = replace(WRONG, cut_off="the limit of steps"), replace(WRONG, reward=-1.0, details={"ended": "format"})
    silent = replace(WRONG, details={"ended": "agent", "answer": None})
    words = [how_it_ended(saved) for saved in (SOLVED, WRONG, DOWN, cut, form, silent)]
    assert words == ["success", "wrong", "aborted: site", "limit: the limit of steps", "format", "no answer"]


SIGNS = [
    ("I've already tried the search box.", {"history"}),
    ("So far, I have looked at three pages.", {"history"}),
    ("Multiple sites have been tried, and the sources failed.", {"history"}),
    ("We visited several websites.", {"history"}),
    ("The page shows a CAPTCHA.", {"blocker"}),
    ("Human verification is required, and I can't access it.", {"blocker"}),
    ("Let me try again with one final attempt.", {"retry"}),
    ("I should use a different search.", {"retry"}),
    ("This item meets all the requirements.", {"proof"}),
    ("It matches, since it costs under $50.", {"proof"}),
    ("It costs under $50.", set()),
    ("It fits: gluten-free and good with kids.", {"proof"}),
    ("It fits: gluten-free.", set()),
    ("I'll click the button.", set()),
]


@pytest.mark.parametrize(("words", "signs"), SIGNS)
def test_signs_of_reasoning(words: str, signs: set[str]) -> None:
    assert signs_in(words) == signs
    assert signs_in(words.replace("'", "’").upper()) == signs, "curly signs and capitals are the same"


def test_only_words_before_the_call_count() -> None:
    assert before_the_call("first\n```web\ndone I've already tried\n```", "thought") == "thought\nfirst"
    found = reasoning_figures([SOLVED])
    assert found["answers"] == 2
    assert found["signs"]["history"] == {"answers": 1, "share": 0.5, "mean_tokens": 20.0}
    assert found["signs"]["none"]["answers"] == 1


def test_intervals() -> None:
    assert wilson(5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    assert wilson(0, 0) is None
    assert [quantile([3, 1, 2, 4], share) for share in (0.5, 0.9)] == [2, 4]


def test_a_trajectory_is_the_same_after_a_file(tmp_path: Path) -> None:
    (tmp_path / "t").write_text(f"{written_trajectory(SOLVED)}\n{written_trajectory(DOWN)}\n")
    assert list(saved_trajectories(tmp_path / "t")) == [SOLVED, DOWN]


def test_a_line_that_was_cut_off_by_a_kill_is_left_out_and_a_broken_one_is_named(tmp_path: Path) -> None:
    line = written_trajectory(SOLVED)
    (tmp_path / "t").write_text(f"{line}\n{line[:50]}")
    assert [saved.session for saved in saved_trajectories(tmp_path / "t")] == ["r.a.0"]
    (tmp_path / "t").write_text(f"{line}\n{line[:50]}\n")
    with pytest.raises(DataError, match="line 2"):
        list(saved_trajectories(tmp_path / "t"))


@pytest.mark.parametrize(
    "odd",
    [
        {"details": []},
        {"details": None},
        {"messages": {}},
        {"messages": ["Do it."]},
        {"details": {"judge_tokens": [1]}},
        {"details": {"judge_tokens": ["1", 2]}},
        {"details": {"judge_tokens": 3}},
        {"spent": [[1e999, 1, "", None]]},
    ],
)
def test_a_line_with_parts_of_another_kind_is_named(tmp_path: Path, odd: dict[str, object]) -> None:
    (tmp_path / "t").write_text(json.dumps(json.loads(written_trajectory(SOLVED)) | odd) + "\n")
    with pytest.raises(DataError, match="line 1 is no trajectory"):
        list(saved_trajectories(tmp_path / "t"))
