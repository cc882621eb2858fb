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
        ('Drop the "Ahoy".', AHOY, AHOY, None),  # of words that it has it may be said that they are liked
        ('put the "Ahoy" at the end', AHOY, f"{PLAIN} Ahoy", None),
        ("скажи «да» в начале", "Когда? В десять.", "Да. Когда? В десять.", FOLLOWED),
        ('write "caf"', "A café, at ten.", "A café, at ten.", NOT_FOLLOWED),
        ('dates as "YYYY-MM-DD"', "It is 1 May 2020, a Friday.", "It is 2020-05-01, a Friday.", None),
        ('say "COOL DUDE" first', PLAIN, PLAIN, None),
        ('say "HEY DUDE" first', PLAIN, PLAIN, NOT_FOLLOWED),
        ('a 27" screen or a 32" one?', PLAIN, PLAIN, None),
        ('"It is a very long sentence. It goes on and on and on" is too much. Say "Ahoy".', PLAIN, AHOY, FOLLOWED),
        ('say "a" or "b"', PLAIN, AHOY, None),
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


@pytest.mark.parametrize(
    ("asked_for", "answer"),
    [
        ('How do I say "good morning" in French?', "Bonjour."),
        ('Who wrote "War and Peace"?', "Tolstoy."),
        ('And what does "ahoy" mean?', "Ahoy is what sailors call."),
        ('hm, "it is ten"?', "No"),
    ],
)
def test_a_new_task_that_quotes_is_no_correction(asked_for: str, answer: str) -> None:
    assert correction_evidence(asked(asked_for), saying("assistant", answer)) is None


def test_what_an_answer_thinks_is_not_what_it_says() -> None:
    thinking = saying("assistant", f'<think>the user wants "Ahoy"</think>{PLAIN}')
    assert correction_evidence(asked('Say "Ahoy" first.'), thinking) == NOT_FOLLOWED


def test_of_many_quotations_the_first_eight_are_read() -> None:
    many = " ".join(f'"word {n}"' for n in range(8))
    assert correction_evidence(asked(f'{many} "Ahoy"'), saying("assistant", AHOY)) == NOT_FOLLOWED
    assert correction_evidence(asked(f'"Ahoy" "ahoy!" {many}'), saying("assistant", AHOY)) is None


def test_a_message_full_of_quotations_is_read_at_once() -> None:
    """Without a bound on them this takes minutes."""
    answer = saying("assistant", "a" * 30_000)
    full = [saying("user", "Hi"), answer, saying("user", " ".join(f'"{"a" * n}"' for n in range(2, 80)) * 12)]
    assert correction_evidence(full, answer) == NOT_FOLLOWED


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
    said = asked('Say "Ahoy".', long)
    assert correction_evidence(said, saying("assistant", f"{long}Ahoy")) == FOLLOWED
    assert correction_evidence(said, saying("assistant", f"{long}Ahoy {long}")) == NOT_FOLLOWED
