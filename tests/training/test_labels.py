"""Labels that announce something: of which wordings it is known, and which lessons say it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.training.homes import settings
from tests.training.tiny import batch, no_tick, sample
from turnwise.config import TrainConfig
from turnwise.errors import ModelError
from turnwise.tokens.rendering import load_renderer
from turnwise.training.asking import GivenAnswer
from turnwise.training.backends import local
from turnwise.training.backends.local import LocalBackend
from turnwise.training.lessons import labels, making, wording
from turnwise.training.lessons.candidates import Answered
from turnwise.training.lessons.labels import (
    announced_labels,
    beside,
    first_labels,
    in_place,
    is_label,
    labelled_answers,
    says_more,
    still_announced,
    with_announced,
)
from turnwise.training.lessons.making import Lesson, make_lessons
from turnwise.training.lessons.questions import questions_of
from turnwise.training.lessons.wishes import Standing, Wording
from turnwise.training.lessons.wording import Wordings
from turnwise.training.policy import Policy

ADVICE = 'put "My advice:" and what you would do'
AGAIN = 'I miss "My advice:", always'
OTHER = 'where is "My advice:" and one sentence?'
UNSIGNED = 'end with "My advice" and what you would do'
EACH = 'always "Tip:" and what helps, and "Source:" and a book'
NEVER: Any = None


def said(wish: str, *before: str) -> Standing:
    return Standing([wish], [], [[9]], [[Wording(text, [n]) for n, text in enumerate(before)]])


def by(margins: dict[str, float]) -> Any:
    """As a model that finds this much in each wish."""
    return lambda pairs: [margins[wish] for _, wish in pairs]


@pytest.mark.parametrize(
    ("wish", "before", "margins", "last", "announced"),
    [
        (ADVICE, [], {ADVICE: 0.1}, ADVICE, ["my advice"]),
        (ADVICE, [], {ADVICE: 0.0}, ADVICE, []),
        (AGAIN, [ADVICE], {ADVICE: 0.5, AGAIN: -1.0}, ADVICE, ["my advice"]),
        (AGAIN, [ADVICE], {ADVICE: 0.5, AGAIN: 0.1}, AGAIN, ["my advice"]),  # the last words say it, too
        (AGAIN, [ADVICE], {ADVICE: 0.5, AGAIN: -1.25}, AGAIN, []),  # the last words clearly say the opposite
        (AGAIN, [ADVICE, OTHER], {ADVICE: 0.5, AGAIN: -1.0, OTHER: -1.0}, AGAIN, []),  # one of three
        (AGAIN, [ADVICE, OTHER], {ADVICE: 0.5, AGAIN: -1.0, OTHER: 0.6}, OTHER, ["my advice"]),
        (ADVICE, [OTHER], {ADVICE: 0.5, OTHER: -2.0}, ADVICE, ["my advice"]),
        ("be brief", [ADVICE], {ADVICE: 0.5}, "be brief", ["my advice"]),  # another wish about it
        (UNSIGNED, [ADVICE], {ADVICE: 0.5}, UNSIGNED, ["my advice"]),  # it does not quote the colon
    ],
)
def test_half_of_the_wordings_with_a_label_have_to_announce_something_and_the_last_words_not_the_opposite(
    wish: str, before: list[str], margins: dict[str, float], last: str, announced: list[str]
) -> None:
    found = with_announced(said(wish, *before), by(margins))
    assert found.wishes == [last] and found.announced == announced
    assert sorted([last, *(one.text for one in found.before[0])]) == sorted([wish, *before]), "no wording is lost"
    places = {wish: [9]} | {text: [n] for n, text in enumerate(before)}
    assert found.said == [sorted({9, *places[last]})], "the last words say it as well"
    assert all(places[one.text] == one.places for one in found.before[0])


def test_a_label_that_a_wording_has_without_marks_gets_them() -> None:
    bare, marked = "add My advice: with what you would do", 'add "My advice:" with what you would do'
    asked: list[tuple[str, str]] = []
    found = with_announced(said(AGAIN, bare), lambda pairs: asked.extend(pairs) or [-1.0, 1.0])
    assert asked == [("My advice:", AGAIN), ("My advice:", marked)]
    assert found.wishes == [marked] and found.before == [[Wording(AGAIN, [9])]]
    found = with_announced(said(bare, AGAIN), by({marked: 0.1, AGAIN: -0.1}))
    assert found.wishes == [marked] and found.before == [[Wording(AGAIN, [0])]], "the last words, too"


def test_of_several_labels_the_wording_has_to_have_all_that_the_last_words_have() -> None:
    both, one = 'a "Tip:" again, and "Source:"', 'a "Source:" with where you know it from'
    asked = {("Tip:", both): -0.1, ("Source:", both): -0.1, ("Source:", one): 0.5, ("Tip:", EACH): 0.1}
    asked[("Source:", EACH)] = 0.2
    margins: Any = lambda pairs: [asked[pair] for pair in pairs]  # noqa: E731
    found = with_announced(said(both, one, EACH), margins)
    assert found.wishes == [EACH] and sorted(found.announced) == ["source", "tip"]
    asked[("Source:", both)] = -2.0  # of this label the last words say the opposite
    found = with_announced(said(both, one, EACH), margins)
    assert found.wishes == [EACH] and found.announced == ["tip"]


def test_no_more_than_some_labels_of_a_wish_are_looked_at() -> None:
    asked: list[tuple[str, str]] = []
    wish = " ".join(f'"Word {n}:"' for n in range(9))
    with_announced(said(wish), lambda pairs: asked.extend(pairs) or [1.0] * len(pairs))
    assert len(asked) == labels.MOST


def test_words_without_a_colon_and_marks_alone_are_no_labels() -> None:
    one = said('begin with "Ahoy" and write ":" before numbers', "be brief")
    found = with_announced(one, lambda _: pytest.fail("it was asked"))
    assert (found.wishes, found.said, found.before, found.announced) == (one.wishes, one.said, one.before, [])
    assert [is_label(words) for words in ("Tip:", "A:", ":", "::", "Tip", "")] == [True, True, *[False] * 4]
    known = Standing(announced=["tip", "ahoy"])
    assert announced_labels(["Tip:", "Ahoy", "Source:"], known) == ["Tip:"]


def test_each_of_several_wishes_keeps_its_own_words() -> None:
    two = Standing(["be brief", AGAIN], [], [[0], [3]], [[Wording("short", [7])], [Wording(ADVICE, [2])]])
    found = with_announced(two, by({AGAIN: -0.1, ADVICE: 0.2}))
    assert found.wishes == ["be brief", ADVICE] and found.said == [[0], [2, 3]]
    assert found.before == [[Wording("short", [7])], [Wording(AGAIN, [3])]]


@pytest.mark.parametrize(
    ("instruction", "margin", "kept"),
    [
        ('Include "My advice:".', -0.1, False),
        (ADVICE, 0.1, True),
        ("Be brief.", None, True),
        ('Say "Ahoy".', None, True),
    ],
)
def test_an_instruction_has_to_say_what_a_label_announces(instruction: str, margin: float | None, kept: bool) -> None:
    answers = {} if margin is None else {instruction: margin}
    assert still_announced(instruction, ["my advice"], by(answers)) is kept


@pytest.mark.parametrize(
    ("answer", "more"),
    [
        ("It is Rome. My advice: go by train", True),
        ("My advice: It is Rome.", False),
        ("My advice: Rome it is, the capital of Italy", False),
        ("It is Rome. My advice:", False),
        ("my\nadvice: Go there. It is Rome.", True),
        ("Go there. It is Rome.", False),
        ("Go. My advice: Rome's", False),
        ("It is Rome. My advice: 3", True),
        ("It is Rome. My advice: B.", True),
        ("It is Rome. My advice: 🎉", True),
        ("It is Rome. My advice: - *is*", False),
        ("Not my advice: no my advice: Rome", False),
        ('My advice: add "My advice:" to it', False),
    ],
)
def test_what_stands_behind_a_label_has_a_word_that_answer_and_question_have_not(answer: str, more: bool) -> None:
    assert says_more("My advice:", answer, "It is Rome.", "What is the capital of Italy?") is more


@pytest.mark.parametrize(
    ("answer", "rest"),
    [
        ("It is Rome. My advice: go by train", "it is rome. "),
        ("It is  Rome.\n\nMy  advice: go\nSource: maps", "it is rome."),
        ("My advice: go. It is Rome.", ""),
        ("My advice: go\nIt is Rome.", "it is rome."),
        ("My advice:\n\nIt is Rome.", ""),
        ("My advice:\ngo\n\nIt is Rome.", "it is rome."),
        ("It is Rome.", "it is rome."),
        ("", ""),
    ],
)
def test_the_answer_beside_its_labels_is_what_their_lines_do_not_say(answer: str, rest: str) -> None:
    assert beside(["My advice:", "Source:"], answer) == rest


def test_labels_are_no_parts_of_longer_words() -> None:
    assert beside(["A:"], "The capital of the USA: Washington\nA: far") == "the capital of the usa: washington"
    assert beside([], "It is\n\n Rome. ") == "it is\nrome."
    assert not says_more("A:", "The capital of the USA: Washington it is. A:", "Washington", "")


class Letters:
    """A renderer and a policy for which every character is a token, and 0 ends an answer."""

    ends = (0,)
    encode = staticmethod(lambda text: [ord(c) for c in text])
    decode = staticmethod(lambda ids: "".join(map(chr, ids)))

    def without_end(self, ids: list[int]) -> list[int]:
        return ids[:-1] if ids[-1:] == [0] else ids


def test_labels_stand_below_plain_answers_with_what_is_said_to_the_end_of_the_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    letters, prompts = cast(Any, Letters()), []
    told = SimpleNamespace(ids=[7])
    plains = ["Rome. \0", "Lima", "Oslo.\0", "Riga.\0", "\0"]
    asked = [
        cast(Answered, SimpleNamespace(plain=letters.encode(text), ended=text.endswith("\0"), told=told))
        for text in plains
    ]
    says = {
        "Rome.\n\nTip:": " go \nnow\0",
        "Oslo.\n\nTip:": "\n\0",
        "Riga.\n\nTip:": " see it\0",
        "Rome.\n\nTip: go\n\nCost:": " 5\0",
        "Riga.\n\nTip: see it\n\nCost:": " it goes on and",
    }

    def sample_of(_p: Any, asked: Sequence[list[int]], longest: int, *_: Any) -> list[GivenAnswer]:
        prompts.extend(letters.decode(ids[1:]) for ids in asked)
        assert all(ids[0] == 7 for ids in asked) and longest == labels.LONGEST
        ids = [letters.encode(says[letters.decode(one[1:])]) for one in asked]
        return [cast(GivenAnswer, SimpleNamespace(ids=one, ended=one[-1] == 0)) for one in ids]

    monkeypatch.setattr(labels, "sample", sample_of)
    found = labelled_answers(letters, letters, asked, ["Tip:", "Cost:"], [], no_tick)
    assert [(i, letters.decode(ids)) for i, ids in found] == [(0, "Rome.\n\nTip: go\n\nCost: 5\0")]
    assert prompts == list(says)
    assert labelled_answers(letters, letters, asked, [], [], no_tick) == []
    says |= {"Tip:": " go\n\0", "Tip: go\n\nRome.\n\nCost:": " 5\0"}
    found = labelled_answers(letters, letters, asked[:1], ["Tip:", "Cost:"], ["Tip:"], no_tick)
    assert [letters.decode(ids) for _, ids in found] == ["Tip: go\n\nRome.\n\nCost: 5\0"]


@pytest.mark.parametrize(
    ("plain", "answer", "labelled", "keeps"),
    [
        ("It is 12", "It is 12 Cheers!", False, True),
        ("It is 12", "It is 125 Cheers!", False, False),
        ("It is 12.", "It is 12.Cheers!", False, True),
        ("Rome", "Tip: go\n\nRome", True, True),
        ("Rome", "Tip: go\n\nRome", False, False),
        ("Rome", "Tip: Rome", True, False),
        ("Rome", "It is Rome", True, False),
    ],
)
def test_a_lesson_keeps_a_plain_answer_that_it_has_whole_at_an_end(
    plain: str, answer: str, labelled: bool, keeps: bool
) -> None:
    letters = cast(Any, Letters())
    asked = cast(Answered, SimpleNamespace(plain=letters.encode(f"{plain}\0")))
    lesson = Lesson([7], letters.encode(f" {answer}\0"), [])
    assert making._keeps(letters, letters, asked, lesson, False, labelled) is keeps


def test_where_too_few_lessons_say_more_plain_answers_stand_behind_the_label(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[list[str]] = []
    lessons = {True: 3, False: 9}

    def make(*given: Any) -> list[Lesson]:
        looked.append(given[4].announced)
        return [Lesson([n], [n], [True]) for n in range(lessons[bool(given[4].announced)])]

    monkeypatch.setattr(wording, "make_lessons", make)
    standing = replace(said(ADVICE), announced=["my advice"])
    made = Wordings(NEVER, NEVER, [], standing, 16, 64, lambda _: None, no_tick).best()
    assert looked == [["my advice"], []] and len(made.lessons) == 9 and made.words.wishes == [ADVICE]
    looked.clear()
    lessons[True] = 4
    assert len(Wordings(NEVER, NEVER, [], standing, 16, 64, lambda _: None, no_tick).best().lessons) == 4
    assert looked == [["my advice"]]
    looked.clear()
    lessons[False] = 0
    assert Wordings(NEVER, NEVER, [], said(ADVICE), 16, 64, lambda _: None, no_tick).best().lessons == []
    assert looked == [[]], "there is nothing else to try"


def test_the_backend_asks_its_model_about_each_label_once(
    tiny_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = LocalBackend(settings(tmp_path, tiny_dir, **{"train.lessons": 4}), tiny_dir)
    asked: list[list[tuple[str, str]]] = []
    looked: list[tuple[list[str], float]] = []

    def announces(_p: Any, _r: Any, pairs: list[tuple[str, str]], _t: Any) -> list[float]:
        asked.append(pairs)
        return [0.5 if wish == ADVICE else -0.5 for _, wish in pairs]

    def plainly(_p: Any, _r: Any, found: Standing, _k: Any, _h: Any, by: Any, _t: Any) -> None:
        looked.append((found.announced, by([("My advice:", ADVICE), ("My advice:", "new"), ("My advice:", "new")])[0]))

    def wordings(_p: Any, _r: Any, _q: Any, found: Standing, _n: Any, _l: Any, plainly: Any, _t: Any) -> Any:
        plainly(replace(found, announced=[]))
        return SimpleNamespace(best=lambda: SimpleNamespace(all=[], words=found))

    monkeypatch.setattr(local, "announces", announces)
    monkeypatch.setattr(local, "plainly", plainly)
    standing = Standing([AGAIN], [], [[1]], [[Wording(ADVICE, [0])]])
    monkeypatch.setattr(local, "standing", lambda *_: standing)
    monkeypatch.setattr(local, "questions_of", lambda *_, **__: [])
    monkeypatch.setattr(local, "Wordings", wordings)
    backend.prepare(0)
    one = batch([sample(0)], hints=[ADVICE, AGAIN], hint_turns=["a", "b"])
    found = backend._standing(one, no_tick)
    assert found.announced == ["my advice"] and found.wishes == [ADVICE]
    backend.lessons(one, no_tick)
    assert looked == [([], 0.5)], "of what was announced none is left where labels are taken as other words"
    assert asked == [[("My advice:", AGAIN), ("My advice:", ADVICE)], [("My advice:", "new")]]

    def no_chat(*_: Any) -> Any:
        raise ModelError("no chat template")

    monkeypatch.setattr(local, "announces", no_chat)
    backend.prepare(0)
    assert backend._standing(one, no_tick).announced == []


def test_a_label_that_an_answer_is_to_begin_with_is_in_its_place_there_alone() -> None:
    both = ["Tip:", "Source:"]
    assert first_labels(both, said('open with "Tip:", and a line that begins with "Source:"')) == ["Tip:"]
    assert first_labels(both, said(EACH)) == []
    for answer, first, found in (
        ("Tip: ask. It is Rome.", ["Tip:"], True),
        ("It is Rome.\nTip: ask.", ["Tip:"], False),
        ("It is Rome.", ["Tip:"], False),
        ("source: a book", ["Tip:", "Source:"], True),
        ("It is Rome.", [], True),
    ):
        assert in_place(first, answer) is found, answer


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wish", "lesson_text"),
    [
        ('add a "Handy tip:" with something I can use', "{plain}\n\n{tip}"),
        ('please open with "Handy tip:" and something I can use', "{tip}\n\n{plain}"),
    ],
)
def test_lessons_of_a_real_model_say_what_the_label_announces(
    wish: str, lesson_text: str, model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it says behind the label is scripted: the embedded model has hardly ever a tip."""
    policy, renderer = Policy(model_dir, TrainConfig(device="cpu", dtype="float32")), load_renderer(model_dir)
    questions = questions_of([], renderer, 6, 512, "1")
    tip = [*renderer.encode(" ask somebody who did it before."), policy.ends[0]]
    monkeypatch.setattr(
        labels, "sample", lambda _p, prompts, *_: [GivenAnswer(tip, [0.0] * len(tip), True) for _ in prompts]
    )
    asked: list[Answered] = []
    opened: list[str] = []
    usual, usual_opened = making._best, making.with_opening
    monkeypatch.setattr(making, "_best", lambda *given: asked.extend(given[2]) or usual(*given))
    monkeypatch.setattr(making, "with_opening", lambda *given: opened.extend(given[-1]) or usual_opened(*given))
    standing = replace(said(wish), announced=["handy tip"])
    made = make_lessons(policy, renderer, questions, 6, standing, 64, no_tick)
    plain = {tuple(one.question.ids): renderer.decode(policy.without_end(one.plain)).strip() for one in asked}
    assert len(made) >= 2 and not opened, "no plain answer stands behind the label"
    for lesson in made:
        text = renderer.decode(policy.without_end(lesson.answer))
        tip_said = "Handy tip: ask somebody who did it before."
        assert text == lesson_text.format(plain=plain[tuple(lesson.asked)], tip=tip_said)
        assert lesson.wished[-1] and not lesson.plain
