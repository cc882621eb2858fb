"""Figures of judges against counts done by hand, and the files that verdicts stand in."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.tiny_vision import png
from turnwise.cli.main import app
from turnwise.errors import DataError
from turnwise.judges.trajectory.agreement import confusion
from turnwise.judges.trajectory.collecting import (
    VERIFIER,
    CollectedVerdict,
    agreement,
    collect,
    conversation,
    verdicts_in,
    verified,
)
from turnwise.messages import images_of
from turnwise.training.sft.conversations import read_data
from turnwise.training.sft.pictures import FilePictures
from turnwise.trajectories.record import SavedTrajectory, written_trajectory
from turnwise.trajectories.trail import ShownPage, Trail, TrailStep

TRAIL = Trail("t", (TrailStep("", ("click(x=1)",), ("ok",)),), (ShownPage("p"),), "a")
GOOD = SavedTrajectory("one", "t1", "web", "Do it.", 1.0, details={"ended": "page"}, trail=TRAIL)


def test_figures_are_those_that_a_hand_counts() -> None:
    said: list[bool | None] = [True] * 6 + [True] * 2 + [False] * 3 + [None] * 9
    so = [True] * 6 + [False] * 2 + [True] * 3 + [False] * 9
    found = confusion(said, so)
    assert (found.yes_yes, found.yes_no, found.no_yes, found.no_no) == (6, 2, 3, 9)
    assert found.accuracy == 0.75
    assert found.precision == 0.75
    assert found.recall == pytest.approx(2 / 3)
    assert found.f1 == pytest.approx(12 / 17)
    chance = (8 * 9 + 12 * 11) / 400
    assert found.kappa == pytest.approx((0.75 - chance) / (1 - chance))


def test_a_judge_that_only_ever_says_yes_agrees_by_chance() -> None:
    assert confusion([True] * 4, [True, True, False, False]).kappa == 0.0
    assert confusion([True] * 4, [True] * 4).kappa is None
    assert confusion([], []).figures()["accuracy"] is None


def test_a_teacher_and_labels_are_held_against_each_judge() -> None:
    words = {"teacher": [True, True, False], "small": [True, False, False], VERIFIER: [True, False, False]}
    verdicts = [
        CollectedVerdict(str(n), name, success, "", [True, False, False][n])
        for name, own in words.items()
        for n, success in enumerate(own)
    ]
    found = agreement(verdicts, "teacher")["judges"]
    assert found["small"]["labels"]["accuracy"] == 1.0
    assert found["small"]["teacher"]["accuracy"] == pytest.approx(2 / 3)
    assert found["teacher"]["teacher"] is None
    with pytest.raises(DataError, match="no judge 'other'"):
        agreement(verdicts, "other")


def test_what_is_nobodys_to_judge_is_left_out() -> None:
    odd = [
        replace(GOOD, session="failed", reward=None, failure="the browser crashed"),
        replace(GOOD, session="cut", cut_off="the limit of steps"),
        replace(GOOD, session="format", reward=-1.0, details={"ended": "format"}),
        replace(GOOD, session="seen", trail=None),
        replace(GOOD, session="judged", verified=False),
        replace(GOOD, session="known"),
    ]
    known = [CollectedVerdict("known", VERIFIER, True, "", True)]
    assert [saved.session for saved, _ in collect([GOOD, GOOD, *odd], known, VERIFIER, verified)] == ["one"]


def test_verdicts_become_conversations_that_can_be_learned(tmp_path: Path) -> None:
    trajectories = [GOOD, replace(GOOD, session="two", reward=0.0)]
    (tmp_path / "run.jsonl").write_text("".join(f"{written_trajectory(saved)}\n" for saved in trajectories))
    files = ["--out", str(tmp_path / "v.jsonl"), "--sft", str(tmp_path / "sft.jsonl")]
    for _ in range(2):  # the second time there is nothing left to judge
        asked = ["judge", "collect", str(tmp_path / "run.jsonl"), *files, "--by", "verifier"]
        assert CliRunner().invoke(app, asked).exit_code == 0
    assert [verdict.success for verdict in verdicts_in(tmp_path / "v.jsonl")] == [True, False]
    learned = read_data(tmp_path / "sft.jsonl", skip_broken=False).conversations
    assert len(learned) == 2
    lines = [json.loads(line) for line in (tmp_path / "sft.jsonl").read_text().splitlines()]
    assert [line["messages"][-1]["content"] for line in lines] == ["Verdict: SUCCESS", "Verdict: NOT SUCCESS"]
    said = CliRunner().invoke(app, ["judge", "agreement", str(tmp_path / "v.jsonl"), "--json"])
    assert json.loads(said.stdout)["judges"][VERIFIER]["labels"]["accuracy"] == 1.0


def test_a_judge_that_sees_learns_from_the_last_screenshots(tmp_path: Path) -> None:
    shown = replace(GOOD, trail=replace(TRAIL, pages=(ShownPage("the words of it", png((9, 9, 9))),)))
    (tmp_path / "run.jsonl").write_text(f"{written_trajectory(shown)}\n")
    files = ["--out", str(tmp_path / "v.jsonl"), "--sft", str(tmp_path / "sft.jsonl")]
    asked = ["judge", "collect", str(tmp_path / "run.jsonl"), *files, "--by", "verifier", "--sft-pictures"]
    assert CliRunner().invoke(app, asked).exit_code == 0
    [learned] = read_data(tmp_path / "sft.jsonl", take=FilePictures(tmp_path, None).take).conversations
    [picture] = [image for message in learned.messages for image in images_of(message)]
    assert picture.url == f"sha256:{hashlib.sha256(png((9, 9, 9))).hexdigest()}"
    assert "the words of it" not in (tmp_path / "sft.jsonl").read_text()
    refused = CliRunner().invoke(app, [*asked[:5], "--by", "verifier", "--sft-pictures"])
    assert refused.exit_code != 0 and "give both" in str(refused.exception)


@pytest.mark.parametrize("sign", ["\u2028", "\u2029", "\x85", "\x1e", "\n", "\r\n"])
def test_a_reply_may_have_any_line_ends_in_it(tmp_path: Path, sign: str) -> None:
    verdict = CollectedVerdict("one", "m", True, f"It was done.{sign}Verdict: SUCCESS", None)
    (tmp_path / "v").write_text(f"{verdict.line()}\n" * 2, encoding="utf-8")
    assert verdicts_in(tmp_path / "v") == [verdict] * 2


def test_a_reply_without_a_verdict_is_not_learned() -> None:
    assert conversation(GOOD, CollectedVerdict("one", "m", None, "hm", True)) is None


@pytest.mark.parametrize(
    "line",
    [
        '{"session": "a"}',
        '{"session": "a", "judge": "b", "success": 1, "label": null}',
        '{"session": "a", "judge": "b", "success": true, "label": null, "tokens": []}',
        '{"session": "a", "judge": "b", "success": true, "label": null, "tokens": [1e999, 0]}',
        "[]",
        "x",
    ],
)
def test_a_line_that_is_no_verdict_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "v").write_text(f"\n{line}\n")
    with pytest.raises(DataError, match="line 2"):
        verdicts_in(tmp_path / "v")
