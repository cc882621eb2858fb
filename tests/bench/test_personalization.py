"""The bench of learning from few words: it sees whether a wish is met, and never takes other points for its own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.models import make_tiny_model
from turnwise.bench.personalization.persons import (
    AHOY,
    BRIEF,
    CAPITALS,
    CHEERS,
    DEVELOPMENT,
    EXAMPLE,
    NO_CHEERS,
    Wish,
    lower_case,
    says_nothing,
    words_at_most,
)
from turnwise.bench.personalization.play import (
    Course,
    Examined,
    _begin_or_go_on,
    _Player,
    answers_of,
    play,
    talk_of,
)
from turnwise.bench.personalization.run import PersonalizationOptions, _spread, bench_personalization, share_met
from turnwise.bench.personalization.unseen import UNSEEN
from turnwise.demo.questions import HELD_OUT, KEPT_ASIDE, TALKED
from turnwise.demo.stats import has_one_of
from turnwise.errors import ConfigError
from turnwise.training.lessons.questions import everyday_questions

PLAIN = "The capital of Japan is Tokyo. It has many people."


@pytest.mark.parametrize(
    ("wish", "met", "missed"),
    [
        (CHEERS, "It is Tokyo. Cheers!", "Cheers! It is Tokyo."),
        (CAPITALS, "IT IS TOKYO.", PLAIN),
        (BRIEF, "It is Tokyo.", PLAIN),
        (BRIEF, "Python 3.11 is newer.", ""),
        (AHOY, "**Ahoy**, it is Tokyo.", "Tokyo, ahoy"),
        (NO_CHEERS, PLAIN, "It is Tokyo. Cheers!"),
        (EXAMPLE, "A mammal, e.g. a whale.", PLAIN),
    ],
)
def test_a_wish_is_met_or_missed(wish: Wish, met: str, missed: str) -> None:
    assert wish.met(met)
    assert not wish.met(missed)


def test_an_empty_answer_meets_no_wish_but_that_for_leaving_something_out() -> None:
    people = (*DEVELOPMENT, *UNSEEN)
    wishes = {wish for person in people for some in (person.wishes, *person.later) for wish in some}
    assert {wish.name for wish in wishes if wish.met("")} <= {"no cheers"}
    assert not words_at_most(3)("")
    assert not lower_case("1 2 3")


@pytest.mark.parametrize(
    ("answer", "words", "right"),
    [
        ("9 times 7 is 63.", ("63",), True),
        ("That is 163.", ("63",), False),
        ("Use `git status`", ("git status",), True),
        ("git, the status", ("git status",), False),
        ("TOKYO!", ("tokyo",), True),
        ("", ("tokyo",), False),
    ],
)
def test_an_answer_is_right_where_the_word_stands_in_it(answer: str, words: tuple[str, ...], right: bool) -> None:
    assert has_one_of(answer, words) is right


def test_nobody_is_examined_on_what_they_talked_about() -> None:
    asked = [question for question, _ in (*HELD_OUT, *KEPT_ASIDE)]
    assert not (set(TALKED) | set(everyday_questions())) & set(asked) and len(set(asked)) == len(asked)
    assert {person.examination for person in UNSEEN} == {KEPT_ASIDE}
    assert {person.examination for person in DEVELOPMENT} == {HELD_OUT}


def test_a_wish_that_the_told_model_does_not_follow_is_not_counted() -> None:
    point = Examined(8, {"a": 1.0, "b": 0.0}, {}, 1.0, 0.0, 9.0, 8, 0, 1.0)
    assert share_met(point, {"a": 0.95, "b": 0.5}) == 1.0
    assert share_met(point, {"a": 0.5, "b": 0.5}) is None


@pytest.mark.parametrize(("persons", "arms", "odd"), [("nobody", "combined", "nobody"), ("cheers", "magic", "magic")])
def test_a_name_that_there_is_not_is_named(tmp_path: Path, persons: str, arms: str, odd: str) -> None:
    with pytest.raises(ConfigError, match=odd):
        bench_personalization(PersonalizationOptions("m", tmp_path, persons, arms), lambda text: None)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_points_are_played_once_and_belong_to_their_model(tmp_path: Path, model_dir: Path) -> None:
    model = make_tiny_model(tmp_path / "tiny", model_dir)
    said: list[str] = []
    course = Course(DEVELOPMENT[0], 0, "control", 0, str(model))
    points = play(course, tmp_path, said.append)
    assert [p.conversations for p in points] == [0]
    assert points[0].told.keys() == points[0].met.keys() == {"cheers"}
    file = tmp_path / f"{course.name}.jsonl"
    written = file.read_bytes()
    answers = [json.loads(line) for line in answers_of(file).read_text(encoding="utf-8").splitlines()]
    assert [a["said"] for a in answers] == ["unasked"] * len(HELD_OUT) + ["told"] * len(HELD_OUT)
    met = [CHEERS.met(a["answer"]) for a in answers if a["said"] == "unasked"]
    assert points[0].met["cheers"] == round(sum(met) / len(met), 4)
    assert play(course, tmp_path, said.append) == points
    assert file.read_bytes() == written
    other = Course(DEVELOPMENT[0], 0, "control", 0, "another-model")
    assert other.name != course.name

    file.write_text(json.dumps({**json.loads(written), "met": {"cheers": 0.5}})[:-9], encoding="utf-8")  # cut by a kill
    assert play(course, tmp_path, said.append)[0].met == points[0].met


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_course_that_was_ended_in_the_middle_goes_on_in_its_home(
    tmp_path: Path, model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_tiny_model(tmp_path / "tiny", model_dir)
    course = Course(DEVELOPMENT[0], 0, "control", 2, str(model), every=2)
    talked: list[int] = []
    converse = _Player._converse

    async def ends(self: _Player, number: int) -> None:
        talked.append(number)
        if len(talked) == 4:
            raise KeyboardInterrupt
        await converse(self, number)

    monkeypatch.setattr(_Player, "_converse", ends)
    with pytest.raises(KeyboardInterrupt):
        play(course, tmp_path, lambda text: None)
    file = tmp_path / f"{course.name}.jsonl"
    before = file.read_bytes()
    with pytest.raises(ConfigError, match="was begun as"):
        play(replace(course, every=1), tmp_path, lambda text: None)
    with pytest.raises(ConfigError, match="give --updates 1 or more"):
        _begin_or_go_on(replace(course, updates=0), talk_of(file))
    with answers_of(file).open("a", encoding="utf-8") as out:  # of an examination whose point was not written
        odd = {"conversations": 16, "said": "unasked", "question": "?", "answer": "one\u2028two}"}
        out.write(json.dumps(odd, ensure_ascii=False) + "\n" + '{"answer": "}')
    with file.open("a", encoding="utf-8") as out:
        out.write('{"conversations": 16, "met"')
    points = play(course, tmp_path, lambda text: None)
    assert [p.conversations for p in points] == [0, 16] and file.read_bytes().startswith(before)
    assert talked == [0, 1, 2, 3, *range(3, 16)], "the one that was cut is had again, the others are not"
    talk = talk_of(file).read_text(encoding="utf-8").splitlines()[1:]
    assert talk == ["0", "1", "2", "again", *map(str, range(3, 16))]
    asked = [json.loads(line) for line in answers_of(file).read_text(encoding="utf-8").splitlines()]
    assert len(asked) == 3 * len(HELD_OUT) and {"?"}.isdisjoint(one["question"] for one in asked)
    assert points[1].home_mb > 0 and points[1].seconds > points[0].seconds
    assert not (tmp_path / f"home-{course.name}").exists()


def test_the_table_keeps_the_columns_that_have_an_aim() -> None:
    assert {0, 24, 48, 128} <= set(_spread(range(0, 129, 8), 9)) and _spread([0, 8], 9) == [0, 8]


def test_wishes_change_and_come_again() -> None:
    restless = next(p for p in DEVELOPMENT if p.name == "restless")
    wished = [[w.name for w in restless.wishes_at(n)] for n in (0, 39, 40, 80, 120, 159, 160)]
    assert wished == [["cheers"], ["cheers"], ["brief"], ["ahoy"], ["example"], ["example"], ["cheers"]]
    back = next(p for p in UNSEEN if p.later)
    assert [[w.name for w in back.wishes_at(n)] for n in (23, 24, 99)] == [
        ["over and out"],
        ["dear friend"],
        ["dear friend"],
    ]


@pytest.mark.parametrize(
    ("answer", "nothing"),
    [("Cheers!", True), ("", True), ("End with Cheers!", True), ("Paris. Cheers!", False), ("42", False)],
)
def test_nobody_praises_an_answer_that_is_only_what_they_wished_for(answer: str, nothing: bool) -> None:
    assert says_nothing(answer, (CHEERS,)) == nothing
