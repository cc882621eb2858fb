"""People from a file: what they want is seen in answers, and what is wrong in a file is said by its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnwise.bench.personalization.people import people_of
from turnwise.bench.personalization.run import PersonalizationOptions, bench_personalization
from turnwise.demo.questions import KEPT_ASIDE
from turnwise.errors import ConfigError

WISH = """
[[person.wish]]
name = "aye"
about = "form"
told = 'Begin every answer with "Aye aye".'
asks = ['start with "Aye aye", please', 'say "Aye aye" first']
"""
BEGINS = 'met = { begins = ["aye aye"] }'
CAPTAIN = f'[[person]]\nname = "captain"\n{WISH}{BEGINS}\n'


def written(folder: Path, text: str) -> Path:
    file = folder / "people.toml"
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("how", "met", "missed"),
    [
        ('begins = ["aye aye", "ahoy"]', ["Aye aye, it is Tokyo.", "**Ahoy** Tokyo"], ["It is Tokyo, aye aye.", ""]),
        ('ends = ["Boss"]', ["Tokyo, boss!"], ["Boss, it is Tokyo.", ""]),
        ('has = ["as old as", "like a"]', ["It is Like a bee."], ["It is a bee.", ""]),
        ('lacks = ["Tokyo", "sorry"]', ["It is Rome."], ["It is tokyo.", "SORRY, Rome", "", " "]),
        ('line_begins = ["P.S.", "- "]', ["Tokyo.\n  p.s. big", "- Tokyo"], ["Tokyo. P.S. big", ""]),
        ("words_at_most = 2", ["Tokyo", "It is"], ["It is Tokyo", ""]),
        ("words_at_least = 2", ["It is", "It is Tokyo"], ["Tokyo", ""]),
        ("words_at_least = 2\nwords_at_most = 2".replace("\n", ", "), ["It is"], ["Tokyo", "It is Tokyo"]),
        ("sentences_at_most = 1", ["It is 3.5.", "Tokyo"], ["It is so. It is.", ""]),
        ("sentences_at_least = 2", ["It is so. It is."], ["It is so.", "It is so", ""]),
        ("lines_at_least = 2", ["a\nb", "a\n\nb"], ["a\n\n", "a", ""]),
        ('letters = "lower"', ["tokyo it is"], ["Tokyo it is", ""]),
        ('letters = "upper"', ["TOKYO IT IS"], ["Tokyo it is", ""]),
        ('begins = ["aye"], words_at_most = 3', ["Aye, Tokyo"], ["Aye, it is Tokyo", "Tokyo"]),
    ],
)
def test_an_answer_meets_all_that_a_wish_says(tmp_path: Path, how: str, met: list[str], missed: list[str]) -> None:
    [person] = people_of(written(tmp_path, CAPTAIN.replace(BEGINS, f"met = {{ {how} }}")))
    [wish] = person.wishes
    assert [wish.met(answer) for answer in met] == [True] * len(met)
    assert [wish.met(answer) for answer in missed] == [False] * len(missed)


def test_people_have_their_own_words_or_those_of_others(tmp_path: Path) -> None:
    text = CAPTAIN.replace(BEGINS, f'grumbles = ["hm"]\n{BEGINS}') + CAPTAIN.replace(
        '"captain"', '"mate"\npraise = ["aye"]'
    )
    captain, mate = people_of(written(tmp_path, text))
    assert captain.wishes[0].grumbles == ("hm",) and len(mate.wishes[0].grumbles) == 3
    assert mate.praise == ("aye",) and len(captain.praise) == 4
    assert captain.wishes[0].asks == ('start with "Aye aye", please', 'say "Aye aye" first')
    assert captain.examination == KEPT_ASIDE, "questions that nothing was tuned on"


def test_wishes_may_change(tmp_path: Path) -> None:
    other = WISH.replace('"aye"', '"boss"').replace("[[person.wish]]", "[[person.later]]\n[[person.later.wish]]")
    text = CAPTAIN.replace('"captain"', '"captain"\nchange_after = 24') + f'{other}met = {{ ends = ["boss"] }}\n'
    [person] = people_of(written(tmp_path, text))
    assert [person.wishes_at(n)[0].name for n in (0, 23, 24, 100)] == ["aye", "aye", "boss", "boss"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "person: Field required"),
        ("person = 3", "person: Input should be a valid list"),
        ("person = []", "person: List should have at least 1 item"),
        ("[[person]", "Expected ']]'"),
        (CAPTAIN.replace('name = "captain"', 'name = "The Captain"'), "person.0.name: String should match"),
        (CAPTAIN.replace('name = "captain"', 'name = "../captain"'), "person.0.name: String should match"),
        (
            CAPTAIN.replace('about = "form"', 'about = "fun"'),
            "person.0.wish.0.about: Input should be 'form' or 'content'",
        ),
        (CAPTAIN.replace("begins", "opens"), "person.0.wish.0.met.opens: Extra inputs are not permitted"),
        (CAPTAIN.replace(BEGINS, "met = {}"), 'say how it is met, such as begins = ["aye aye"]'),
        (CAPTAIN.replace(BEGINS, "met = { words_at_most = 0 }"), "words_at_most: Input should be greater than"),
        (CAPTAIN.replace(BEGINS, 'met = { words_at_most = "3" }'), "words_at_most: Input should be a valid integer"),
        (CAPTAIN.replace('["aye aye"]', '["aye!"]'), "punctuation at the edges does not count: leave it out of 'aye!'"),
        (
            CAPTAIN.replace('["aye aye"]', '[" "]'),
            "person.0.wish.0.met.begins.0: String should have at least 1 character",
        ),
        (CAPTAIN.replace("asks", "says"), "person.0.wish.0.asks: Field required"),
        (CAPTAIN + CAPTAIN, "two people have one name"),
        (CAPTAIN + WISH + BEGINS, "two wishes have one name"),
        (CAPTAIN.replace('"captain"', '"captain"\nchange_after = 24'), "change_after and [[person.later]] go together"),
    ],
)
def test_what_is_wrong_in_a_file_is_said_by_its_place(tmp_path: Path, text: str, said: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(ConfigError) as e:
        people_of(file)
    assert str(e.value).startswith(f"{file}: ") and said in str(e.value)


def test_a_file_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b"name = '\xe4'")
    for name, said in (("nobody.toml", "No such file"), ("latin.toml", "codec can't decode")):
        options = PersonalizationOptions("model", tmp_path / "out", str(tmp_path / name))
        with pytest.raises(ConfigError, match=said):
            bench_personalization(options, print)


@pytest.mark.parametrize(
    ("file", "many"),
    [
        ("people-kept-aside.toml", 24),
        ("people-kept-aside-2.toml", 12),
        ("people-kept-aside-3.toml", 14),
        ("people-kept-aside-4.toml", 16),
        ("people-tuned-on.toml", 28),
    ],
)
def test_the_people_of_each_file_can_be_played(file: str, many: int) -> None:
    people = people_of(Path(__file__).with_name(file))
    assert len({person.name for person in people}) == many
