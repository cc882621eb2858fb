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
from turnwise.training.lessons import announced, making, wording
from turnwise.training.lessons.announced import announcing, beside, says_more, still_announced, with_announced
from turnwise.training.lessons.candidates import Answered
from turnwise.training.lessons.making import Lesson, make_lessons
from turnwise.training.lessons.questions import questions_of
from turnwise.training.lessons.wishes import Standing, Wording
from turnwise.training.lessons.wording import Wordings
from turnwise.training.policy import Policy

ADVICE = 'put "My advice:" and what you would do'
AGAIN = 'I miss "My advice:", always'
NEVER: Any = None


def said(wish: str, *before: str) -> Standing:
    return Standing([wish], [], [[9]], [[Wording(text, [n]) for n, text in enumerate(before)]])


def by(margins: dict[str, float]) -> Any:
    """As a model that finds this much in each wish."""
    return lambda pairs: [margins[wish] for _, wish in pairs]


@pytest.mark.parametrize(
    ("wish", "before", "margins", "last", "labels"),
    [
        (ADVICE, [], {ADVICE: 0.1}, ADVICE, ["my advice"]),
        (ADVICE, [], {ADVICE: -0.1}, ADVICE, []),
        (ADVICE, [], {ADVICE: 0.0}, ADVICE, []),
        (AGAIN, [ADVICE], {ADVICE: 0.5, AGAIN: -1.0}, ADVICE, ["my advice"]),
        (AGAIN, [ADVICE], {ADVICE: 0.2, AGAIN: 0.3}, AGAIN, ["my advice"]),
        (AGAIN, [ADVICE, AGAIN + "!"], {ADVICE: 0.5, AGAIN: -1.0, AGAIN + "!": -1.0}, AGAIN, []),
        ("be brief", [ADVICE], {ADVICE: 0.5}, ADVICE, ["my advice"]),
    ],
)
def test_half_of_the_wordings_with_a_label_have_to_announce_something(
    wish: str, before: list[str], margins: dict[str, float], last: str, labels: list[str]
) -> None:
    found = with_announced(said(wish, *before), by(margins))
    assert found.wishes == [last] and found.announced == labels
    texts = sorted([*found.wishes, *(one.text for one in found.before[0])])
    assert texts == sorted([wish, *before]), "no wording is lost"
    places = {wish: [9]} | {text: [n] for n, text in enumerate(before)}
    assert found.said == [places[last]] and all(places[one.text] == one.places for one in found.before[0])


def test_a_label_that_a_wording_has_without_marks_gets_them() -> None:
    bare = "add My advice: with what you would do"
    asked: list[tuple[str, str]] = []
    found = with_announced(said(AGAIN, bare), lambda pairs: asked.extend(pairs) or [-1.0, 1.0])
    assert asked == [("My advice:", AGAIN), ("My advice:", 'add "My advice:" with what you would do')]
    assert found.wishes == ['add "My advice:" with what you would do']


def test_words_without_a_colon_are_asked_about_nowhere() -> None:
    one = said('begin with "Ahoy"', "be brief")
    found = with_announced(one, lambda _: pytest.fail("it was asked"))
    assert found == one and found.announced == []


def test_each_of_several_wishes_keeps_its_own_words() -> None:
    two = Standing(["be brief", AGAIN], [], [[0], [3]], [[Wording("short", [7])], [Wording(ADVICE, [2])]])
    found = with_announced(two, by({AGAIN: 0.1, ADVICE: 0.2}))
    assert found.wishes == ["be brief", ADVICE] and found.said == [[0], [2]]
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
    assert still_announced(said(instruction), ["my advice"], by(answers)) is kept


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
        ("It is Rome.", "it is rome."),
        ("", ""),
    ],
)
def test_the_answer_beside_its_labels_is_what_their_lines_do_not_say(answer: str, rest: str) -> None:
    assert beside(["My advice:", "Source:"], answer) == rest
    assert beside([], answer) == "\n".join(" ".join(line.split()) for line in answer.casefold().splitlines() if line)


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
        assert all(ids[0] == 7 for ids in asked) and longest == announced.LONGEST
        ids = [letters.encode(says[letters.decode(one[1:])]) for one in asked]
        return [cast(GivenAnswer, SimpleNamespace(ids=one, ended=one[-1] == 0)) for one in ids]

    monkeypatch.setattr(announced, "sample", sample_of)
    found = announcing(letters, letters, asked, ["Tip:", "Cost:"], no_tick)
    assert [(i, letters.decode(ids)) for i, ids in found] == [(0, "Rome.\n\nTip: go\n\nCost: 5\0")]
    assert prompts == list(says)
    assert announcing(letters, letters, asked, [], no_tick) == []


def test_where_too_few_lessons_say_more_plain_answers_stand_behind_the_label(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[list[str]] = []
    lessons = {True: 3, False: 9}

    def make(*given: Any) -> list[Lesson]:
        looked.append(given[4].announced)
        return [Lesson([n], [n], [True]) for n in range(lessons[bool(given[4].announced)])]

    monkeypatch.setattr(wording, "make_lessons", make)
    standing = replace(said(ADVICE), announced=["my advice"])
    made = Wordings(NEVER, NEVER, [], standing, 16, 64, lambda: None, no_tick).best()
    assert looked == [["my advice"], []] and len(made.lessons) == 9 and made.words.wishes == [ADVICE]
    looked.clear()
    lessons[True] = 4
    assert len(Wordings(NEVER, NEVER, [], standing, 16, 64, lambda: None, no_tick).best().lessons) == 4
    assert looked == [["my advice"]]
    looked.clear()
    lessons[False] = 0
    assert Wordings(NEVER, NEVER, [], said(ADVICE), 16, 64, lambda: None, no_tick).best().lessons == []
    assert looked == [[]], "there is nothing else to try"


def test_the_backend_asks_its_model_and_believes_no_instruction_that_leaves_it_out(
    tiny_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = LocalBackend(settings(tmp_path, tiny_dir, **{"train.lessons": 4}), tiny_dir)
    short = 'Include "My advice:".'
    looked: list[Standing | None] = []

    def wordings(_p: Any, _r: Any, _q: Any, found: Standing, _n: Any, _l: Any, plainly: Any, _t: Any) -> Any:
        looked.append(plainly())
        return SimpleNamespace(best=lambda: SimpleNamespace(all=[], words=found))

    monkeypatch.setattr(local, "announces", lambda _p, _r, pairs, _t: [0.0 if w == short else 1.0 for _, w in pairs])
    standing = Standing([AGAIN], [], [[1]], [[Wording(ADVICE, [0])]])
    monkeypatch.setattr(local, "standing", lambda *_: standing)
    monkeypatch.setattr(local, "questions_of", lambda *_, **__: [])
    monkeypatch.setattr(local, "Wordings", wordings)
    for instruction in (short, ADVICE):
        monkeypatch.setattr(local, "plainly", lambda *_, one=instruction: said(one))
        backend.prepare(0)
        one = batch([sample(0)], hints=[ADVICE, AGAIN], hint_turns=["a", "b"])
        assert backend._standing(one, no_tick).announced == ["my advice"]
        backend.lessons(one, no_tick)
    assert looked == [None, said(ADVICE)]

    def no_chat(*_: Any) -> Any:
        raise ModelError("no chat template")

    monkeypatch.setattr(local, "announces", no_chat)
    backend.prepare(0)
    assert backend._standing(one, no_tick).announced == []


@pytest.mark.slow
def test_lessons_of_a_real_model_say_what_the_label_announces(model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it says behind the label is scripted: the embedded model has hardly ever a tip."""
    policy, renderer = Policy(model_dir, TrainConfig(device="cpu", dtype="float32")), load_renderer(model_dir)
    questions = questions_of([], renderer, 6, 512, "1")
    tip = [*renderer.encode(" ask somebody who did it before."), policy.ends[0]]
    monkeypatch.setattr(
        announced, "sample", lambda _p, prompts, *_: [GivenAnswer(tip, [0.0] * len(tip), True) for _ in prompts]
    )
    asked: list[Answered] = []
    opened: list[str] = []
    usual, usual_opened = making._best, making._opened
    monkeypatch.setattr(making, "_best", lambda *given: asked.extend(given[2]) or usual(*given))
    monkeypatch.setattr(making, "_opened", lambda *given: opened.extend(given[-1]) or usual_opened(*given))
    standing = replace(said('add a "Handy tip:" with something I can use'), announced=["handy tip"])
    made = make_lessons(policy, renderer, questions, 6, standing, 64, no_tick)
    plain = {tuple(one.question.ids): renderer.decode(policy.without_end(one.plain)).strip() for one in asked}
    assert len(made) >= 2 and not opened, "no plain answer stands behind the label"
    for lesson in made:
        text = renderer.decode(policy.without_end(lesson.answer))
        assert text == f"{plain[tuple(lesson.asked)]}\n\nHandy tip: ask somebody who did it before."
        assert lesson.wished[-1] and not lesson.plain
