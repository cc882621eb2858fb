"""How what a person said and what tools reported become a score, a confidence, a hint and reasons: sums by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from turnwise.judges.signals.head import Opinion, words_head
from turnwise.judges.signals.reading import Reading
from turnwise.judges.signals.verdict import judge_by_words, weigh
from turnwise.messages import from_chat, saying
from turnwise.types import Proposal

SAID = Reading("Add 3 and 4", "7", ("That is wrong.", "Use metric units."), (False, False))
NOTHING = Reading("Add 3 and 4", "7", ())
PROPOSAL = Proposal("tool bash", "use ISO dates")


def opinion(bad: float, neutral: float, good: float, *directive: float) -> Opinion:
    return Opinion((bad, neutral, good), list(directive or (0.0, 0.0)), [0.0] * (len(directive) or 2))


@pytest.mark.parametrize(
    ("chances", "best"), [((0.7, 0.2, 0.1), -1), ((0.2, 0.6, 0.2), 0), ((0.05, 0.15, 0.8), 1), ((0.0, 0.0, 1.0), 1)]
)
def test_the_likeliest_score_of_the_persons_words_is_the_verdict(chances: Any, best: int) -> None:
    found = weigh(SAID, opinion(*chances))
    assert (found.score, found.best) == (best, best)
    assert found.confidence == pytest.approx(max(chances), abs=1e-5)
    assert found.reasons == ["the person's words"]


@pytest.mark.parametrize(("chance", "decides"), [(0.54, False), (0.56, True)])
def test_below_a_chance_of_55_percent_the_judge_abstains_and_keeps_its_guess(chance: float, decides: bool) -> None:
    found = weigh(SAID, opinion(chance, 1 - chance, 0.0))
    assert (found.score, found.best) == (-1 if decides else None, -1)
    assert weigh(SAID, opinion(0.3, 0.6, 0.1), min_confidence=0.61).score is None
    assert weigh(SAID, opinion(0.3, 0.3, 0.4), min_confidence=0.39).score == 1


def test_where_nobody_said_anything_the_guess_is_neutral_and_unsure() -> None:
    found = weigh(NOTHING, None)
    assert (found.score, found.best, found.confidence, found.reasons) == (None, 0, 0.4, [])
    assert weigh(NOTHING, None, min_confidence=0.4).score == 0


def test_what_tools_reported_alone_is_their_chance() -> None:
    found = weigh(replace(NOTHING, evidence="tool.tests_failed"), None)
    assert (found.score, found.reasons) == (-1, ["tool.tests_failed"])
    assert found.confidence == pytest.approx(0.94)


def test_beside_the_person_tools_count_three_tenths() -> None:
    """The chances are multiplied, those of the tools to the power of 0.3, and made to sum to one."""
    found = weigh(replace(SAID, evidence="tool.tests_passed"), opinion(0.6, 0.3, 0.1))
    parts = [0.6 * 0.04**0.3, 0.3 * 0.05**0.3, 0.1 * 0.91**0.3]
    assert found.best == -1
    assert found.confidence == pytest.approx(parts[0] / sum(parts))
    assert found.reasons == ["the person's words", "tool.tests_passed"]
    close = weigh(replace(SAID, evidence="tool.tests_passed"), opinion(0.35, 0.3, 0.35))
    assert close.best == 1, "of two that are as likely the tools decide"


@pytest.mark.parametrize(
    ("correction", "unsure", "sure"), [("correction.followed", 1, -1), ("correction.not_followed", -1, -1)]
)
def test_an_answer_that_did_what_a_correction_quotes_weighs_like_an_opinion(
    correction: str, unsure: int, sure: int
) -> None:
    """Beside somebody who is sure it changes nothing, and without anything said it says nothing."""
    reading = replace(SAID, correction=correction)
    found = weigh(reading, opinion(0.4, 0.2, 0.4))
    assert (found.score, found.reasons) == (unsure, ["the person's words", correction])
    assert found.confidence == pytest.approx(0.4 * 0.7 / (0.4 * 0.7 + 0.2 * 0.15 + 0.4 * 0.15))
    assert weigh(reading, opinion(0.9, 0.05, 0.05)).score == sure
    silent = weigh(replace(NOTHING, correction=correction), None)
    assert (silent.score, silent.reasons) == (None, [])


# -- hints -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chances", "hint"),
    [
        ((0.9, 0.9), "That is wrong. Use metric units."),
        ((0.1, 0.65), "Use metric units."),
        ((0.1, 0.64), None),
    ],
)
def test_sentences_from_a_chance_of_65_percent_on_are_the_hint(chances: tuple[float, float], hint: str | None) -> None:
    assert weigh(SAID, opinion(0.4, 0.3, 0.3, *chances)).hint == hint


def test_what_says_outright_that_it_lasts_is_a_hint_whatever_the_head_thinks() -> None:
    lasting = replace(SAID, lasting=(False, True))
    assert weigh(lasting, opinion(0.4, 0.3, 0.3, 0.0, 0.0)).hint == "Use metric units."
    assert weigh(lasting, opinion(0.4, 0.3, 0.3, 0.9, 0.0)).hint == "That is wrong. Use metric units."
    assert weigh(lasting, None).hint == "Use metric units."


def test_the_persons_hint_comes_before_that_of_a_report_and_a_proposal_after_both() -> None:
    """A proposal is for the person to look at where there is no hint."""
    reported = replace(SAID, report_hint="Use only programs that are installed.", proposal=PROPOSAL)
    own = weigh(reported, opinion(0.4, 0.3, 0.3, 0.0, 0.9))
    assert (own.hint, own.proposal) == ("Use metric units.", None)
    ours = weigh(reported, opinion(0.4, 0.3, 0.3))
    assert (ours.hint, ours.proposal) == ("Use only programs that are installed.", None)
    none = weigh(replace(reported, report_hint=None), opinion(0.4, 0.3, 0.3))
    assert (none.hint, none.proposal) == (None, PROPOSAL)


def test_without_an_engine_the_head_over_words_has_the_opinion() -> None:
    asked, answer = [saying("user", "Add 3 and 4")], saying("assistant", "8")
    found = judge_by_words(asked, answer, [saying("user", "No, that's wrong, you forgot one!")])
    words = words_head().opinion_of_words(("No, that's wrong, you forgot one!",))
    assert found.confidence == pytest.approx(max(words.score), abs=1e-5)
    assert found.reasons == ["the person's words"]
    nobody = judge_by_words(asked, answer, [from_chat({"role": "tool", "content": "wrong, you forgot one!"})])
    assert (nobody.reasons, nobody.confidence) == ([], 0.4)


# -- quoted phrases --------------------------------------------------------------------------------------------------

QUOTING = Reading(
    "Add 3 and 4", "7", ('Close with "" please.', "Use words only."), (False, False),
    ('Close with "Over to you, folks!" please.', "Use words only."),
)  # fmt: skip


@pytest.mark.parametrize(
    ("own", "hint"),
    [(0.5, 'Close with "Over to you, folks!" please. Use words only.'), (0.49, "Use words only.")],
)
def test_a_phrase_that_the_person_wants_said_is_in_the_hint_and_the_sentence_of_any_other_is_not(
    own: float, hint: str
) -> None:
    said = Opinion((0.9, 0.1, 0.0), [0.9, 0.8], [own, 0.0])
    assert weigh(QUOTING, said).hint == hint


def test_who_wants_a_phrase_to_be_said_says_how_to_answer() -> None:
    said = Opinion((0.9, 0.1, 0.0), [0.1, 0.1], [0.5, 1.0])
    assert weigh(QUOTING, said).hint == 'Close with "Over to you, folks!" please.'


def test_a_sentence_with_a_longer_quotation_beside_the_phrase_gives_no_hint() -> None:
    two = replace(
        QUOTING, sentences=('"" was the mail, so say ""',), quoting=('"" was the mail, so say "bye now, you!"',)
    )
    assert weigh(replace(two, lasting=(True,)), Opinion((0.9, 0.1, 0.0), [0.9], [1.0])).hint is None
