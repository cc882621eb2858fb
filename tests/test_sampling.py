"""What makes a turn a sample, by value; that the journal goes by it is tested with the journal."""

from __future__ import annotations

from typing import Any

import pytest

from turnwise.config import TrainConfig
from turnwise.methods import METHODS, OF_TURNS
from turnwise.sampling import (
    Signal,
    exclusion_of_answer,
    fresh_versions,
    may_keep_only_turn,
    places_beside,
    signal_of_verdict,
    spans,
    takes_hint,
)
from turnwise.types import Exclusion, FinishReason, TurnKind


@pytest.mark.parametrize(
    ("method", "score", "hint", "hint_at", "found"),
    [
        ("combined", 1, None, None, Signal(1.0, None)),
        ("combined", -1, "shorter", 7, Signal(-1.0, "shorter")),
        ("combined", 0, "shorter", 0, Signal(0.0, "shorter")),
        ("combined", 0, "shorter", None, Exclusion.NO_SIGNAL),  # a hint without a place teaches nothing
        ("combined", 0, "", 7, Exclusion.NO_SIGNAL),
        ("binary", -1, "shorter", 7, Signal(-1.0, None)),
        ("binary", 0, "shorter", 7, Exclusion.NO_SIGNAL),
        ("opd", -1, "shorter", 7, Signal(0.0, "shorter")),
        ("opd", 1, None, 7, Exclusion.NO_SIGNAL),
    ],
)
def test_a_verdict_makes_a_sample_of_what_the_method_learns_from(
    method: str, score: int, hint: str | None, hint_at: int | None, found: Signal | Exclusion
) -> None:
    assert signal_of_verdict(method, score, hint, hint_at, response_tokens=5) == found


def test_an_answer_without_tokens_is_no_sample_whatever_its_verdict() -> None:
    assert signal_of_verdict("combined", 1, None, None, response_tokens=0) is Exclusion.NOT_TRAINABLE


GOOD: dict[str, Any] = {"pinned": False, "closed": False, "too_long": False, "empty": False}


@pytest.mark.parametrize(
    ("kind", "finish", "changes", "found"),
    [
        (TurnKind.MAIN, FinishReason.STOP, {}, None),
        (TurnKind.MAIN, FinishReason.LENGTH, {}, None),
        (TurnKind.SIDE, FinishReason.ABORT, {}, Exclusion.ABORTED),
        (TurnKind.MAIN, FinishReason.INTERRUPTED, {}, Exclusion.INTERRUPTED),
        (TurnKind.MAIN, FinishReason.ERROR, {}, Exclusion.INFRASTRUCTURE),
        (TurnKind.MAIN, FinishReason.ERROR, {"too_long": True}, Exclusion.TOO_LONG),
        (TurnKind.SIDE, FinishReason.CONTENT_FILTER, {}, Exclusion.CONTENT_FILTER),
        (TurnKind.SIDE, FinishReason.STOP, {"pinned": True}, Exclusion.SIDE_TURN),
        (TurnKind.MAIN, FinishReason.STOP, {"pinned": True, "empty": True}, Exclusion.PINNED_VERSION),
        (TurnKind.MAIN, FinishReason.STOP, {"empty": True, "closed": True}, Exclusion.NOT_TRAINABLE),
        (TurnKind.MAIN, FinishReason.STOP, {"closed": True}, Exclusion.NO_NEXT_STATE),
    ],
)
def test_what_excludes_an_answered_turn(
    kind: TurnKind, finish: FinishReason, changes: dict[str, bool], found: Exclusion | None
) -> None:
    assert exclusion_of_answer(kind, finish, **(GOOD | changes)) is found


def test_a_reward_is_the_score_times_the_confidence_in_it() -> None:
    assert signal_of_verdict("combined", -1, "shorter", 7, 5, 0.7) == Signal(-0.7, "shorter")
    assert signal_of_verdict("binary", 1, None, None, 5, 0.99) == Signal(0.99, None)
    assert signal_of_verdict("opd", 1, "shorter", 7, 5, 0.7) == Signal(0.0, "shorter")


IN_A_ROW = {n: n - 1 for n in range(1, 13)}
ROLLED_BACK = IN_A_ROW | {13: 1, 14: 13}
"""Twelve versions, then back to the first, and two on top of it."""


@pytest.mark.parametrize(
    ("parents", "serving", "most", "fresh"),
    [
        ({}, 0, 8, {0}),
        ({7: 0}, 7, 0, {7}),
        ({7: 5, 5: 2, 2: 0}, 7, 1, {7, 5}),  # versions count, not numbers: 6, 4 and 3 were never published
        ({7: 5, 5: 2, 2: 0}, 7, 3, {7, 5, 2, 0}),
        (IN_A_ROW, 12, 3, {12, 11, 10, 9}),
        (IN_A_ROW, 1, 3, {1, 0, 2, 3, 4}),  # gone back: its own are fresh, and 2 to 4 are as far as they say
        (ROLLED_BACK, 14, 3, {14, 13, 1, 0, 2}),  # 0 and 2 lie three updates away: up to 1, and down
        (ROLLED_BACK, 13, 0, {13}),
        (ROLLED_BACK, 12, 2, {12, 11, 10}),  # back again to what was left
    ],
)
def test_the_age_of_a_sample_is_counted_along_parents(
    parents: dict[int, int], serving: int, most: int, fresh: set[int]
) -> None:
    assert fresh_versions(parents, serving, most) == fresh


def test_fresh_versions_are_named_by_the_stretches_they_make() -> None:
    versions = [0, 1, 2, 5, 9, 12, 13]
    assert spans(versions, {0, 1, 5, 9, 13}) == [(0, 1), (5, 9), (13, 13)]
    assert spans(versions, set()) == [] and spans(versions, set(versions)) == [(0, 13)]


def test_a_sessions_only_turn_is_kept() -> None:
    assert may_keep_only_turn([5])
    assert not may_keep_only_turn([]) and not may_keep_only_turn([5, 5]) and not may_keep_only_turn([0])


def test_turns_of_the_kl_term_alone_are_never_more_than_the_others_and_never_before_them() -> None:
    assert [places_beside(n, 8) for n in (0, 1, 4, 6, 8)] == [0, 1, 4, 2, 0]


def test_the_signals_of_a_method_have_weights_in_the_configuration() -> None:
    assert {weight for method in METHODS.values() for weight in method.weights} <= TrainConfig.model_fields.keys()
    assert all(METHODS[name].weights for name in OF_TURNS)
    assert [name for name in METHODS if takes_hint(name, 3)] == ["combined", "opd"]
