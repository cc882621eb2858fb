"""What makes a turn a sample, by value; that the journal goes by it is tested with the journal."""

from __future__ import annotations

from typing import Any

import pytest

from turnwise.config import TrainConfig
from turnwise.methods import METHODS
from turnwise.sampling import (
    Signal,
    exclusion_of_answer,
    may_keep_only_turn,
    oldest_fresh,
    signal_of_verdict,
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


@pytest.mark.parametrize(
    ("published", "most", "oldest"),
    [([], 0, 0), ([], 8, 0), ([7], 0, 7), ([7, 5, 2], 1, 5), ([7, 5, 2], 2, 2), ([7, 5, 2], 3, 0)],
)
def test_a_sample_may_be_as_many_published_versions_old(published: list[int], most: int, oldest: int) -> None:
    """Versions count, not numbers: 6, 4 and 3 were never published."""
    assert oldest_fresh(published, most) == oldest


def test_only_binary_keeps_a_sessions_only_turn() -> None:
    assert [m for m in METHODS if may_keep_only_turn(m, [5])] == ["binary"]
    assert not may_keep_only_turn("binary", []) and not may_keep_only_turn("binary", [5, 5])
    assert not may_keep_only_turn("binary", [0])


def test_the_signals_of_a_method_have_weights_in_the_configuration() -> None:
    assert {weight for method in METHODS.values() for weight in method.weights} <= TrainConfig.model_fields.keys()
    assert all(method.weights for method in METHODS.values())
    assert [name for name in METHODS if takes_hint(name, 3)] == ["combined", "opd"]
