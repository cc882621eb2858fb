"""Which two wishes no answer meets both of: shorter and longer answers, and two languages, in the person's words."""

from __future__ import annotations

import pytest

from turnwise.skills.opposed import opposed
from turnwise.skills.vectors import word_vectors
from turnwise.skills.wishes import same_thing

OPPOSED = [
    ("Shorter, please.", "Longer, please."),
    ("shorter please", "why so short? longer please"),
    ("Too long. Keep it shorter, please.", "That is too short. Longer answers, please."),
    ("be brief", "more detail please, that was too short"),
    ("give me longer answers", "too long, just the number please"),
    ("not so long, please", "this is not long enough"),
    ("Bitte kürzer.", "Longer answers, please."),
    ("keep it short", "Bitte ausführlicher antworten."),
    ("plus court s'il te plaît", "plus long, avec des détails"),
    ("más corto, por favor", "respuestas más largas, por favor"),
    ("Bitte antworte auf Deutsch.", "Answer in English, please."),
    ("in French from now on", "write in Spanish, please"),
    ("English, please", "nein, auf Deutsch bitte"),
]
TOGETHER = [
    ("Shorter, please.", "Keep it shorter, please."),
    ("too long", "bitte kürzer"),
    ("Longer answers, please.", "less formal please"),
    ("short sentences please", "more detail please"),
    ("keep the intro short", "Longer answers, please."),
    ("be brief", "answer in French"),
    ('begin with "Long story short"', "a longer answer please"),
    ("answer in German when I write German", "answer in English when I write English"),
    ("both, german and english", "in English please"),
    ("name German wines", "answer in English please"),
    ("no longer answer in French", "in English, please"),
    ("not in German", "in English, please"),
    ("keep it short, no lists", "Keep it brief"),
    ("", "shorter"),
    ("Answer me in German, please.", "Leave technical terms in English."),
    ("answer in German", "keep the code comments in English"),
    ("translate wine names in French", "answer in English"),
    ("polish your answer", "in English, please"),
    ("don't be brief", "more detail please"),
    ("I don't need details", "be brief"),
    ("so short answers please", "be brief"),
    ("Your sentences are too long", "more detail please"),
    ("the list is too long", "more detail please"),
    ("I read these in court", "more detail please"),
]


@pytest.mark.parametrize(("one", "other"), OPPOSED)
def test_no_answer_is_both(one: str, other: str) -> None:
    assert opposed(one, other) and opposed(other, one)


@pytest.mark.parametrize(("one", "other"), TOGETHER)
def test_an_answer_may_be_both(one: str, other: str) -> None:
    assert not opposed(one, other) and not opposed(other, one)


@pytest.mark.parametrize(("one", "other"), [OPPOSED[6], OPPOSED[10]])
def test_skills_take_such_wishes_for_ones_about_the_same_thing(one: str, other: str) -> None:
    assert same_thing(one, [other], word_vectors()) == [True]
