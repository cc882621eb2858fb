"""Means with 95 % intervals over problems, and what can be counted in answers without a model. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from turnwise.patterns import pattern

RESAMPLES = 10_000


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean; ValueError if there is nothing to average."""
    if not values:
        raise ValueError("the mean of no values")
    return float(np.mean(values))


def bootstrap_ci95(values: Sequence[float], *, seed: int = 0) -> tuple[float, float]:
    """The 95 % percentile bootstrap interval of the mean, resampling problems; a single value gives itself twice.

    Paired differences go in as differences. The same values and seed give the same interval.
    """
    if not values:
        raise ValueError("the interval of no values")
    data = np.asarray(values, dtype=float)
    picks = np.random.default_rng(seed).integers(0, len(data), size=(RESAMPLES, len(data)))
    low, high = np.percentile(data[picks].mean(axis=1), [2.5, 97.5])
    return float(low), float(high)


def repetition(text: str) -> float:
    """Share of a text's word 4-grams that are repeats of an earlier one, in [0, 1]; 0 for fewer than four words."""
    words = text.lower().split()
    grams = [tuple(words[i : i + 4]) for i in range(len(words) - 3)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def distinct_share(texts: Sequence[str]) -> float:
    """Distinct words over all words of ``texts``, each text on its own and then averaged; 0 when all are empty."""
    shares = [len(set(words)) / len(words) for text in texts if (words := text.lower().split())]
    return float(np.mean(shares)) if shares else 0.0


_WORD = pattern(r"\w+")


def has_one_of(answer: str, words: Sequence[str]) -> bool:
    """Whether one of these words, or some words in a row, stands in the answer; in any case."""
    said = f" {' '.join(_WORD.findall(answer.lower()))} "
    return any(f" {word} " in said for word in words)


_NUMBER = pattern(r"-?\d[\d,]*(?:\.\d+)?")


def last_number(text: str) -> str | None:
    """The last number in ``text`` without thousands separators, or None."""
    numbers = _NUMBER.findall(text)
    return numbers[-1].replace(",", "") if numbers else None


def is_correct(answer: str, right: str) -> bool:
    """Whether the last number of ``answer`` equals ``right``: the usual reading of GSM8K answers."""
    number = last_number(answer)
    return number is not None and abs(float(number) - float(right)) < 1e-6
