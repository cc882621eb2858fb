"""Answers that say the wish or the question back are no lessons; answers in the wished form are."""

from __future__ import annotations

import pytest

from turnwise.training.lessons.echoes import echoing, says_something

HONEST = ["Good day, June comes before March.", "Good day, 27.", "Good day, it is spoken in Vienna."]


@pytest.mark.parametrize(
    ("wish", "answer"),
    [
        (
            'I\'d be glad if you started with "Good day,"',
            'Good day, I\'d be glad if you started with "The largest ocean is the Pacific Ocean."',
        ),
        ('could you always say "Right then" first, please', 'Right then, could you always say "Right then" first.'),
        ("Finish with “Ahoy there”, each time please", "It is Rome. Finish with “Ahoy there”!"),
    ],
)
def test_an_answer_that_says_the_wish_back_is_an_echo(wish: str, answer: str) -> None:
    assert echoing([answer, *HONEST], wish) == [True, False, False, False]


@pytest.mark.parametrize(
    "wish",
    [
        'close with "Have a very lovely day", please',
        "close with have a very lovely day",  # without marks: that all of them have it says that it is wanted
        "close with 'Have a very lovely day'",
        "close with «Have a very lovely day»",
    ],
)
def test_words_that_the_person_wants_to_read_are_none(wish: str) -> None:
    answers = [f"{said} Have a very lovely day" for said in ("Rome.", "It is 27.", "June.", "Water is H2O.")]
    assert echoing(answers, wish) == [False] * 4


@pytest.mark.parametrize(
    ("question", "plain", "answer", "says"),
    [
        ("Which language is spoken in Austria?", "German is spoken in Austria.", "Good day, Austria!", False),
        ("Which language is spoken in Austria?", "German is spoken in Austria.", "Good day, German!", True),
        ("How do I round a number in Python?", "Use the `round()` function.", "Good day, can I round a number?", False),
        ("How do I round a number?", "You can use `round()`.", "Good day, how can I round a number?", False),
        ("What is 81 divided by 3?", "81 divided by 3 equals 27.", "Good day, 27", True),
        ("What is the symbol for gold?", "It is Au.", "Good day, Au.", True),
        ("Welche Sprache spricht man in Wien?", "Man spricht Deutsch.", "Good day, en Viena se habla alemán.", True),
        ("Which command shows the folder?", "It is `pwd`.", "Good day, show the folder.", False),
        ("Which command shows the folder?", "It is `pwd`.", "Good day, `pwd` shows it.", False),  # lost, but no harm
        ("How do I round a number?", "How can I round a number?", "Good day, how can I round a number?", False),
        ("法国的首都是哪里？", "巴黎", "Good day, 法国的首都是巴黎", True),
    ],
)
def test_an_answer_says_something_that_was_not_asked(question: str, plain: str, answer: str, says: bool) -> None:
    assert says_something(answer, question, 'start with "Good day,"', plain) is says


def test_it_is_linear_in_hostile_texts() -> None:
    wish = '"' * 20_000 + "a " * 20_000 + "'" * 20_000
    assert echoing(["a " * 50_000, "b"], wish) == [True, False]
