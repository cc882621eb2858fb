"""Which sentences of a person are wishes that last, on labelled sentences in several languages.

`wishes-dev.jsonl` is what the patterns were made with; `wishes-kept-aside.jsonl` was scored once, at the end: the
figure in docs/skills.md is of those.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from turnwise.evolving.evidence import look_at
from turnwise.judges.text import sentences
from turnwise.messages import saying
from turnwise.skills.vectors import word_vectors
from turnwise.skills.wishes import same_thing, wishes_among
from turnwise.types import JudgeTask

HERE = Path(__file__).parent


def labelled(name: str) -> list[tuple[str, bool]]:
    lines = (HERE / f"wishes-{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [(row["said"], row["wish"]) for row in map(json.loads, lines)]


@pytest.mark.parametrize(("said", "wish"), [*labelled("dev"), *labelled("kept-aside")])
def test_a_wish_is_told_from_a_sentence_about_something_else(said: str, wish: bool) -> None:
    assert bool(wishes_among(sentences(said), None)) == wish


def test_what_a_task_says_of_its_result_is_no_wish_even_as_the_judges_hint() -> None:
    said = ["Write a function that adds numbers.", "It must always return a list.", "Never raise."]
    assert wishes_among(said, " ".join(said)) == []
    assert wishes_among(["The function should never raise."], "The function should never raise.") == []


@pytest.mark.parametrize(
    ("wish", "other", "same"),
    [
        ("Never sort by price.", "Always sort by date.", False),
        ("Always sort by date.", "Never sort by price.", False),
        ("Never use tables.", "Never use emojis.", False),
        ("Use emojis in every answer.", "Never use emojis.", True),
        ("From now on answer in French.", "From now on answer in German.", True),
        ("From now on use imperial units.", "Always use metric units.", True),
        ("Longer answers, please.", "Never write long answers.", True),
    ],
)
def test_what_forbids_one_thing_leaves_another_that_shares_its_frame(wish: str, other: str, same: bool) -> None:
    assert same_thing(wish, [other], word_vectors()) == [same]


@pytest.mark.parametrize(
    ("hint", "wishes"),
    [
        ('From now on close with "Over to you, folks!"', ['From now on close with "Over to you, folks!"']),
        (None, []),
    ],
)
def test_a_wish_has_the_phrase_that_it_quotes_where_the_judge_took_it_for_the_persons(
    hint: str | None, wishes: list[str]
) -> None:
    state = [saying("user", 'From now on close with "Over to you, folks!"')]
    task = JudgeTask("turn-1", "t", 1, [saying("user", "Add 3 and 4")], saying("assistant", "7"), state)
    assert [wish.words for wish in look_at(task, "s", "signals", -1, hint).wishes] == wishes


def test_what_a_task_says_beside_a_quotation_is_no_wish() -> None:
    state = [saying("user", 'Write a function that prints "hello big wide world". Always return a list.')]
    task = JudgeTask("turn-1", "t", 1, [saying("user", "Add 3 and 4")], saying("assistant", "7"), state)
    assert look_at(task, "s", "signals", -1, None).wishes == ()
