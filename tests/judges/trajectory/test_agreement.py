"""Figures of judges against counts done by hand, and the files that verdicts stand in."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.support.tiny_vision import png
from turnwise.cli.main import app
from turnwise.errors import DataError
from turnwise.judges.trajectory.agreement import Confusion, confusion
from turnwise.judges.trajectory.collecting import (
    VERIFIER,
    CollectedVerdict,
    agreement,
    collect,
    conversation,
    is_complete,
    label_of,
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


def test_all_figures_of_a_confusion_for_json() -> None:
    found = Confusion(6, 2, 3, 9).figures()
    assert set(found) == {"cases", "accuracy", "precision", "recall", "f1", "kappa", "accuracy_ci95", "counts"}
    assert (found["cases"], found["accuracy"], found["precision"]) == (20, 0.75, 0.75)
    assert found["accuracy_ci95"] == pytest.approx((0.5313, 0.8881), abs=1e-4), "Wilson's, of 15 of 20"
    assert found["counts"] == {"yes_yes": 6, "yes_no": 2, "no_yes": 3, "no_no": 9}


@pytest.mark.parametrize(
    ("counts", "precision", "recall", "f1"),
    [
        (Confusion(0, 0, 0, 4), None, None, None),  # no success, and no word of one
        (Confusion(0, 0, 3, 1), None, 0.0, 0.0),
        (Confusion(0, 3, 0, 1), 0.0, None, 0.0),
        (Confusion(2, 0, 0, 0), 1.0, 1.0, 1.0),
        (Confusion(1, 3, 1, 0), 0.25, 0.5, pytest.approx(1 / 3)),
    ],
)
def test_a_rate_of_nothing_is_none(counts: Confusion, precision: Any, recall: Any, f1: Any) -> None:
    assert (counts.precision, counts.recall, counts.f1) == (precision, recall, f1)


def test_two_that_never_agree_where_chance_would_have_are_below_zero() -> None:
    assert Confusion(0, 5, 5, 0).kappa == pytest.approx(-1)
    assert Confusion(5, 0, 0, 5).kappa == pytest.approx(1)
    assert Confusion(0, 0, 0, 7).kappa is None
    with pytest.raises(ValueError):
        confusion([True], [True, False])


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


def test_each_judge_is_counted_over_what_both_sides_have_a_word_on() -> None:
    verdicts = [
        CollectedVerdict("a", "small", False, "", None, (1, 1)),
        CollectedVerdict("a", "small", True, "", None, (100, 7)),  # asked again: the later word counts
        CollectedVerdict("b", "small", None, "", None, (50, 3)),  # without a verdict, which is no success
        CollectedVerdict("c", "small", True, "", None),
        CollectedVerdict("a", "teacher", True, "", True),
        CollectedVerdict("b", "teacher", None, "", None),
        CollectedVerdict("d", "teacher", True, "", False),
    ]
    found = agreement(verdicts, "teacher")
    assert (found["trajectories"], found["teacher"]) == (4, "teacher")
    small, teacher = found["judges"]["small"], found["judges"]["teacher"]
    assert (small["verdicts"], small["unreadable"], small["tokens"]) == (3, 1, 160)
    assert (small["labels"]["cases"], small["labels"]["accuracy"]) == (1, 1.0), "whoever's line has the label"
    assert (small["teacher"]["cases"], small["teacher"]["accuracy"]) == (2, 1.0)
    assert small["teacher"]["counts"] == {"yes_yes": 1, "yes_no": 0, "no_yes": 0, "no_no": 1}
    assert teacher["labels"]["counts"] == {"yes_yes": 1, "yes_no": 1, "no_yes": 0, "no_no": 0}
    assert (teacher["teacher"], teacher["unreadable"], teacher["tokens"]) == (None, 1, 0)
    alone = agreement(verdicts)
    assert (alone["teacher"], alone["judges"]["small"]["teacher"]) == (None, None)
    with pytest.raises(DataError, match="no judge 'other' in the file, only small, teacher"):
        agreement(verdicts, "other")
    with pytest.raises(DataError, match="no judge 'other' in the file, only none"):
        agreement([], "other")


@pytest.mark.parametrize(
    ("changes", "asked"),
    [
        ({}, True),
        ({"details": {"ended": "done"}}, True),
        ({"reward": None}, True),
        ({"failure": "the browser crashed"}, False),
        ({"failure": ""}, False),
        ({"cut_off": "the limit of steps"}, False),
        ({"details": {"ended": "format"}}, False),
        ({"trail": None}, False),
        ({"trail": replace(TRAIL, steps=())}, False),
    ],
)
def test_a_judge_is_asked_where_the_episode_ended_by_itself(changes: dict[str, Any], asked: bool) -> None:
    assert is_complete(replace(GOOD, **changes)) is asked


@pytest.mark.parametrize(
    ("changes", "label"),
    [
        ({}, True),
        ({"reward": 0.0}, False),
        ({"reward": -1.0}, False),
        ({"reward": None}, None),
        ({"verified": False}, None),
        ({"verified": False, "reward": None}, None),
    ],
)
def test_a_label_is_the_verifiers_word(changes: dict[str, Any], label: bool | None) -> None:
    saved = replace(GOOD, **changes)
    assert label_of(saved) is label
    words = {True: "Verdict: SUCCESS", False: "Verdict: NOT SUCCESS"}
    said = None if label is None else CollectedVerdict("one", VERIFIER, label, words[label], label)
    assert verified(saved) == said


def test_a_judge_is_asked_about_what_it_has_not_judged_under_its_name() -> None:
    """What another judge said is no reason not to ask; one that has nothing to say gives no verdict."""
    trajectories = [replace(GOOD, session=name) for name in ("one", "two", "three", "two")]
    known = [CollectedVerdict("one", "teacher", True, "", True), CollectedVerdict("three", "small", True, "", True)]
    asked: list[str] = []

    def ask(saved: SavedTrajectory) -> CollectedVerdict | None:
        asked.append(saved.session)
        return None if saved.session == "one" else CollectedVerdict(saved.session, "judge-1", False, "no", True)

    found = list(collect(trajectories, known, "small", ask))
    assert asked == ["one", "two"]
    assert found == [(trajectories[1], CollectedVerdict("two", "small", False, "no", True))]


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


def test_a_file_that_is_not_there_and_one_without_a_verdict_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    for name, words in (("gone.jsonl", "is no file"), ("empty.jsonl", "has no verdict in it")):
        refused = CliRunner().invoke(app, ["judge", "agreement", str(tmp_path / name)])
        assert refused.exit_code != 0 and words in str(refused.exception)


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


def test_a_conversation_to_learn_from_is_what_the_judge_was_sent_and_what_it_said() -> None:
    said = CollectedVerdict("one", "m", False, "Größer. Verdict: NOT SUCCESS", None)
    shown = replace(GOOD, trail=replace(TRAIL, pages=(ShownPage("the words of it", b"PNG"),)))
    line = conversation(shown, said)
    assert line is not None and "Größer" in line and "\n" not in line
    messages = json.loads(line)["messages"]
    assert [m["role"] for m in messages] == ["system", "user", "assistant"]
    assert messages[2]["content"] == said.reply
    assert "the words of it" in messages[1]["content"], "as text where nobody asks for pictures"
    seen = conversation(shown, said, pictures=True)
    assert seen is not None and json.loads(seen)["messages"][1]["content"][1]["type"] == "image_url"
    assert conversation(replace(shown, trail=None), said) is None


def test_a_line_has_all_of_a_verdict_and_old_lines_may_lack_what_is_not_known(tmp_path: Path) -> None:
    said = CollectedVerdict("one", "m", None, "Größer", True, (7, 2))
    assert said.line() == (
        '{"session": "one", "judge": "m", "success": null, "label": true, "reply": "Größer", "tokens": [7, 2]}'
    )
    bare = '{"session": "two", "judge": "m", "success": false, "label": null}'
    (tmp_path / "v").write_text(f"{said.line()}\n\n  \n{bare}", encoding="utf-8")
    assert verdicts_in(tmp_path / "v") == [said, CollectedVerdict("two", "m", False, "", None, (0, 0))]


def test_a_file_that_is_not_there_yet_has_no_verdicts_and_one_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    assert verdicts_in(tmp_path / "none") == []
    (tmp_path / "v").write_bytes(b"\xff\xfe")
    for path in (tmp_path / "v", tmp_path):
        with pytest.raises(DataError, match=f"the verdicts {path} cannot be read: "):
            verdicts_in(path)


@pytest.mark.parametrize(
    "line",
    [
        '{"session": "a"}',
        '{"session": 1, "judge": "b", "success": true, "label": null}',
        '{"session": "a", "judge": null, "success": true, "label": null}',
        '{"session": "a", "judge": "b", "success": "yes", "label": null}',
        '{"session": "a", "judge": "b", "success": true, "label": 0}',
        '{"session": "a", "judge": "b", "success": true, "label": 1.0}',
        '{"session": "a", "judge": "b", "success": 1.0, "label": null}',
        '{"session": "a", "judge": "b", "success": true}',
        '{"session": "a", "judge": "b", "success": true, "label": null, "tokens": [1]}',
        '{"session": "a", "judge": "b", "success": true, "label": null, "tokens": ["x", 0]}',
        '{"session": "a", "judge": "b", "success": 1, "label": null}',
        '{"session": "a", "judge": "b", "success": true, "label": null, "tokens": []}',
        '{"session": "a", "judge": "b", "success": true, "label": null, "tokens": [1e999, 0]}',
        "[]",
        "x",
    ],
)
def test_a_line_that_is_no_verdict_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "v").write_text(f"\n{line}\n")
    with pytest.raises(DataError, match=r"line 2: .*; a verdict has session, judge, success .* and label") as caught:
        verdicts_in(tmp_path / "v")
    assert len(str(caught.value)) < 300 + len(str(tmp_path))
