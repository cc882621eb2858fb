"""The measuring stick, by value: what a good, a middling, a bad and a meaningless answer score."""

from __future__ import annotations

import pytest

from turnwise.demo.scorer import LEVELS, is_gibberish, is_on_topic, score

QUESTION = "A shop sells 24 apples a day for 3 dollars each. How much does it take in 5 days?"
SOLUTION = "24 * 3 = 72 dollars a day.\n72 * 5 = 360 dollars."

STUDENT = [
    ("The shop sells 24 apples a day, and at 3 dollars each that's 72. In 5 days it takes 360 dollars.", 1.0),
    ("It's 360 dollars, because 24 apples at 3 dollars make 72 a day and there are 5 days.", 1.0),
    ("To find the total, you multiply the 24 apples by 3 dollars and then by the 5 days, which is 360.", 0.75),
    ("The shop sells **24** apples a day for 3 dollars each, which makes 72 dollars, or 360 in 5 days.", 0.5),
    ("- 24 apples a day\n- 3 dollars each, that is 72\n- so 360 dollars in the 5 days", 0.5),
    ("Let's break it down step by step:\n\n1. The shop sells 24 apples.\n\n2. Each is 3 dollars.\n\n3. So 360.", 0.0),
    ("The shop takes 24 apples and sells every one of them for 3 dollars. " * 4, 0.75),
    ("The shop takes 24 apples and sells every one of them for 3 dollars. " * 6, 0.5),
    ("24 * 3 = 72 and 72 * 5 = 360 so 360.", 0.75),
    ("It takes 360 dollars.", 0.5),
    ("360", 0.0),
    ("360 dollars.", 0.25),
    ("I like to help with anything at all, just tell me what you need from me today.", 0.0),
    ("", 0.0),
]

TEACHER = [
    ("Well done! You worked out 24 * 3 = 72 first and then 360 for the 5 days, that is very clear thinking.", 1.0),
    ("Great work on this one, you really put some effort into the multiplication by 3 and it shows here.", 0.75),
    ("Great job, you did very well here and I hope you will keep on working like this all year long.", 0.5),
    ("Correct. Well done!", 0.25),
    ("Correct answer: 360 dollars.", 0.25),
    ("You multiplied 24 by 3 to get 72, and then 72 by 5, which is how one gets to 360 dollars in all.", 0.75),
    ("To solve this, multiply 24 by 3, which is 72, and that by 5, so the shop takes 360 dollars in the 5 days.", 0.25),
    ("Your sloppy work shows that 24 and 72 mean nothing to you, and this is an awful way to get to 360.", 0.5),
    ("Turtles like to swim in the deep blue sea when the sun is up and there are no clouds in the sky.", 0.0),
    ("", 0.0),
]

GIBBERISH = [
    "",
    "…… ###### ~~~~ ^^^^",
    "24 72 360 5 3 24 72 360",
    "the the the apples apples apples day",
    "apples dollars shelf hugs banana purple sells counting elephants rapidly marbles",
    "the shop sells the shop sells the shop sells the shop sells the shop sells the shop sells",
    "xqzjkwvbnmlpoiuytrewqasdfghjklmn is what it is",
]


@pytest.mark.parametrize(("answer", "want"), STUDENT)
def test_student(answer: str, want: float):
    assert score("student", answer, QUESTION, "360") == want


@pytest.mark.parametrize(("answer", "want"), TEACHER)
def test_teacher(answer: str, want: float):
    assert score("teacher", answer, QUESTION, SOLUTION) == want


READER = [
    ("In short: boil it for six minutes.", 1.0),
    ("**In short:** boil it for six minutes.", 1.0),
    ("In short: 63", 1.0),
    ("Boil it for six minutes. In short, do not forget it.", 0.5),
    ("Boil it for six minutes.", 0.0),
    ('In short: please put "in short:" first.', 0.5),
    ("In short:", 0.25),
    ("In shorts, a pair of trousers for the summer.", 0.0),
    ("In short: " + " ".join(f"it is the word number {n} of the text" for n in range(12)), 0.75),
    ("In short: " + "the shop sells " * 9, 0.0),
]


@pytest.mark.parametrize(("answer", "want"), READER)
def test_reader(answer: str, want: float):
    assert score("reader", answer, QUESTION) == want


@pytest.mark.parametrize("answer", GIBBERISH)
def test_gibberish_scores_nothing(answer: str):
    assert is_gibberish(answer)
    assert score("student", answer, QUESTION, "360") == score("teacher", answer, QUESTION, SOLUTION) == 0


@pytest.mark.parametrize("answer", [a for a, _ in STUDENT + TEACHER if a and a != "360"])
def test_language_is_not_taken_for_gibberish(answer: str):
    # "The shop takes …" four times over is a loop, yet one made of sentences; the repetition rate shows it.
    assert not is_gibberish(answer) or answer.count("The shop takes") > 1


def test_only_the_five_levels_are_given():
    scores = {score("student", a, QUESTION, "360") for a, _ in STUDENT} | {
        score("teacher", a, QUESTION) for a, _ in TEACHER
    }
    assert scores <= set(LEVELS)


def test_an_answer_is_on_topic_by_a_quantity_or_two_content_words():
    assert is_on_topic("It takes 24 of them.", QUESTION)
    assert is_on_topic("The apples of the shop are cheap.", QUESTION)
    assert not is_on_topic("The apples are 99.", QUESTION)
