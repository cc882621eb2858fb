"""What is seen in answers alone: how long they are, and how much they repeat."""

from __future__ import annotations

from collections.abc import Sequence


def repetition(answers: Sequence[Sequence[int]]) -> float | None:
    """Share of the 4-grams of each answer that it has had before, over all answers; None without any 4-gram."""
    seen = [[tuple(a[i : i + 4]) for i in range(len(a) - 3)] for a in answers]
    total = sum(len(grams) for grams in seen)
    return 1 - sum(len(set(grams)) for grams in seen) / total if total else None


def mean_length(answers: Sequence[Sequence[int]], most: int) -> float:
    """Mean tokens of an answer, none counted as more than ``most``."""
    return sum(min(len(a), most) for a in answers) / len(answers)
