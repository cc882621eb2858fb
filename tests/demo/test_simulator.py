"""The simulated person: seeded, varied, content with what they wished for and not with anything else."""

from __future__ import annotations

import random
import re

import pytest

from turnwise.demo.personas import PERSONAS
from turnwise.demo.problems import Problem, Pupil
from turnwise.demo.simulator import Reply, expand, opening, reply

PROBLEM = Problem(
    "1",
    "f",
    "Tom has 12 marbles and wins 7. How many does Tom have?",
    "19",
    "12 + 7 = 19",
    Pupil("Mia", "12 + 7 = 19", False),
)
STIFF = (
    "To solve this problem, we need to break it down step by step.\n\n1. **Start**: Tom has 12 marbles.\n"
    "2. **Add** 7 marbles.\n\nTherefore, the number of marbles that Tom has after he wins is 12 + 7 = 19 marbles, "
    "which is the final answer to the question asked about the marbles of Tom in this problem.\n\nIn conclusion: 19."
)
CURT_COMMENT = "The answer is 19."
UNSATISFYING = {"reader": STIFF, "student": STIFF, "teacher": CURT_COMMENT}
SATISFYING = {
    "reader": "**In short:** Tom has 19 marbles.",
    "student": "Tom starts with 12 marbles and gets 7 more, so he ends up with 19.",
    "teacher": "Well done Mia! You added 12 and 7 and got 19, which is right. Your work is neat, keep going!",
}


@pytest.mark.parametrize("name", PERSONAS)
def test_the_same_seed_gives_the_same_words(name: str):
    persona = PERSONAS[name]
    for talk in (lambda rng: reply(persona, PROBLEM, STIFF, rng), lambda rng: opening(persona, PROBLEM, rng)):
        assert [talk(random.Random(s)) for s in range(20)] == [talk(random.Random(s)) for s in range(20)]


@pytest.mark.parametrize("name", PERSONAS)
def test_replies_have_hundreds_of_forms(name: str):
    replies = {reply(PERSONAS[name], PROBLEM, UNSATISFYING[name], random.Random(s)).text.lower() for s in range(1000)}
    assert len(replies) >= 200


@pytest.mark.parametrize("name", PERSONAS)
def test_what_was_wished_for_is_praised_and_nothing_is_asked(name: str):
    said = reply(PERSONAS[name], PROBLEM, SATISFYING[name], random.Random(0))
    assert said.satisfied and not said.directive and said.aspects == ()


@pytest.mark.parametrize("name", PERSONAS)
def test_most_replies_to_an_unsatisfying_answer_say_what_is_wanted(name: str):
    said = [reply(PERSONAS[name], PROBLEM, UNSATISFYING[name], random.Random(s)) for s in range(400)]
    assert not any(r.satisfied for r in said)
    assert 0.75 < sum(r.directive for r in said) / len(said) < 0.95
    assert {len(r.aspects) for r in said} <= {1, 2}


@pytest.mark.parametrize(
    ("answer", "aspect"),
    [
        ("- Tom has 12 marbles\n- he wins 7\n- that makes 19 for him", "list"),
        ("Tom has **12** marbles and wins 7, that makes 19.", "bold"),
        ("# Solution\nTom has 12 marbles and wins 7, that makes 19.", "heading"),
        ("Tom has $$12 + 7 = 19$$ marbles after he wins 7 more.", "formula"),
        ("Tom has 12 marbles.\n\nHe wins 7 more.\n\nThat makes 19 marbles.", "blocks"),
        ("Certainly, Tom has 12 marbles and wins 7, that makes 19.", "robotic"),
        ("Tom has 12 marbles and wins 7. " * 10, "long"),
        ("Step 1 is to take the 12 marbles, step 2 to add 7, so 19.", "steps"),
        ("19.", "curt"),
        ("I like turtles very much, and you surely like them too.", "off_topic"),
        ("", "off_topic"),
    ],
)
def test_the_student_sees(answer: str, aspect: str):
    assert aspect in PERSONAS["student"].look(answer, PROBLEM)


@pytest.mark.parametrize(
    ("answer", "aspect"),
    [
        (CURT_COMMENT, "curt"),
        ("Good work, you have really done well here, and I do hope you go on like that.", "vague"),
        ("You added 12 and 7 and that gave you 19 in the end, which is what was asked for.", "cold"),
        ("To do this one adds 12 and 7, a nice sum, which gives 19 marbles for Tom in the end.", "lecture"),
        ("You added 12 and 7 and this is wrong and careless, as anyone can see at once here.", "harsh"),
    ],
)
def test_the_teacher_sees(answer: str, aspect: str):
    assert aspect in PERSONAS["teacher"].look(answer, PROBLEM)


@pytest.mark.parametrize("name", PERSONAS)
def test_no_grammar_leaves_a_mark_behind(name: str):
    persona = PERSONAS[name]
    grammars = [g for a in persona.aspects.values() for g in a.grumbles + a.wants]
    grammars += [*persona.openings, *persona.reasons, *persona.praise, *persona.relief, *persona.resigned]
    for grammar in grammars:
        for seed in range(10):
            text = expand(grammar, random.Random(seed))
            assert not re.search(r"[\[\]|]", text), grammar
            assert "  " not in text and " ," not in text, grammar


def test_every_aspect_a_look_can_name_has_words():
    for persona in PERSONAS.values():
        seen = set()
        for answer in (*UNSATISFYING.values(), *SATISFYING.values(), "", "19.", "You are a bad pupil, 12 " * 9):
            seen |= set(persona.look(answer, PROBLEM))
        assert seen <= set(persona.aspects)


def test_alternatives_nest():
    assert {expand("[a|[b|c]d]", random.Random(s)) for s in range(50)} == {"a", "bd", "cd"}


def test_a_person_gives_up_or_is_relieved_after_a_second_try():
    student = PERSONAS["student"]
    last: Reply = reply(student, PROBLEM, SATISFYING["student"], random.Random(1), last=True)
    first: Reply = reply(student, PROBLEM, SATISFYING["student"], random.Random(1))
    assert last.satisfied and last.text != first.text
