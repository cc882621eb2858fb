"""Whether an answer did what the correction before it quotes."""

from __future__ import annotations

import pytest

from turnwise.judges.signals.corrections import FOLLOWED, NOT_FOLLOWED, correction_evidence
from turnwise.messages import saying
from turnwise.types import Message, ToolCall

PLAIN, AHOY = "It is ten.", "Ahoy! It is ten."


def asked(correction: str, before: str = PLAIN) -> list[Message]:
    return [saying("user", "What time is it?"), saying("assistant", before), saying("user", correction)]


@pytest.mark.parametrize(
    ("correction", "before", "answer", "found"),
    [
        ('Say "Ahoy" first.', PLAIN, AHOY, FOLLOWED),
        ('Say "Ahoy" first.', PLAIN, PLAIN, NOT_FOLLOWED),
        ('Say "ahoy!" first.', PLAIN, AHOY, FOLLOWED),  # capitals and signs at the edges do not count
        ("Sag „Ahoy“ am Anfang.", PLAIN, AHOY, FOLLOWED),
        ("用「你好」开头", "十点。", "你好，十点。", FOLLOWED),
        (
            'end with "over and out, my dear old friend"',
            PLAIN,
            f"{PLAIN} Over and out, my dear  old\nfriend.",
            FOLLOWED,
        ),
        ('Drop the "Ahoy".', AHOY, PLAIN, FOLLOWED),
        ('Drop the "Ahoy".', AHOY, AHOY, NOT_FOLLOWED),
        ('"Ahoy" first and "Cheers" last', PLAIN, f"{AHOY} Cheers", FOLLOWED),
        ('"Ahoy" first and "Cheers" last', PLAIN, AHOY, None),
        ('"Ahoy", not "Hello"', f"Hello! {PLAIN}", AHOY, FOLLOWED),
        ('Say "Art" first.', PLAIN, f"Party! {PLAIN}", NOT_FOLLOWED),
        ('Say "Art" first.', PLAIN, f"Party! Art! {PLAIN}", FOLLOWED),
        ('put a "🌻" at the end', PLAIN, f"{PLAIN} 🌻", FOLLOWED),
        ('an "a" for a good one', PLAIN, f"{PLAIN} a", None),  # one letter stands in too many answers
        ("Say Ahoy first.", PLAIN, AHOY, None),
        ('Say "" first.', PLAIN, AHOY, None),
        ('Say "..." first.', PLAIN, AHOY, None),
        ('Say "Ahoy" first.', "", AHOY, None),
        ('Say "Ahoy" first.', PLAIN, "", None),
    ],
)
def test_words_that_a_correction_quotes_should_be_otherwise_in_the_next_answer(
    correction: str, before: str, answer: str, found: str | None
) -> None:
    assert correction_evidence(asked(correction, before), saying("assistant", answer)) == found


def test_without_an_answer_before_a_quotation_is_no_correction() -> None:
    assert correction_evidence([saying("user", 'What does "ahoy" mean?')], saying("assistant", AHOY)) is None
    assert correction_evidence([], saying("assistant", AHOY)) is None
    only = [saying("assistant", PLAIN)]
    assert correction_evidence(only, saying("assistant", AHOY)) is None


def test_the_last_words_of_the_person_and_the_answer_before_them_count() -> None:
    talk = [*asked('Say "Cheers" last.'), saying("assistant", f"{PLAIN} Cheers"), saying("user", 'and "Ahoy" first')]
    assert correction_evidence(talk, saying("assistant", f"{AHOY} Cheers")) == FOLLOWED
    assert correction_evidence(talk, saying("assistant", f"{PLAIN} Cheers")) == NOT_FOLLOWED
    again = [*talk, saying("assistant", AHOY), saying("user", "hm")]
    assert correction_evidence(again, saying("assistant", AHOY)) is None


def test_a_call_of_a_tool_shows_nothing_of_what_is_said() -> None:
    call = Message("assistant", (ToolCall("say", '{"text": "Ahoy"}', "1"),))
    assert correction_evidence(asked('Say "Ahoy" first.'), call) is None


def test_what_somebody_else_quotes_in_the_persons_message_is_no_correction() -> None:
    pasted = 'too long\n\n> From: Ann\n> please say "Ahoy" first'
    assert correction_evidence(asked(pasted), saying("assistant", PLAIN)) is None


def test_only_the_ends_of_long_answers_are_read() -> None:
    long = "word " * 10_000
    assert correction_evidence(asked('Say "Ahoy".'), saying("assistant", f"{long}Ahoy")) == FOLLOWED
    assert correction_evidence(asked('Say "Ahoy".'), saying("assistant", f"{long}Ahoy {long}")) == NOT_FOLLOWED
