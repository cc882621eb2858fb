"""Figures, by value."""

from __future__ import annotations

import pytest

from turnwise.demo import stats


def test_bootstrap_interval_golden():
    low, high = stats.bootstrap_ci95([0, 0.25, 0.5, 0.75, 1] * 7)
    # The normal approximation: 0.5 ± 1.96 · 0.3536 / √35 = [0.383, 0.617].
    assert (low, high) == (pytest.approx(0.383, abs=0.01), pytest.approx(0.617, abs=0.01))


def test_bootstrap_interval_of_equal_values_has_no_width():
    assert stats.bootstrap_ci95([0.5] * 9) == (0.5, 0.5)
    assert stats.bootstrap_ci95([0.25]) == (0.25, 0.25)


def test_bootstrap_interval_is_the_same_for_the_same_seed():
    values = [0.0, 1.0, 0.25, 0.75, 0.75]
    assert stats.bootstrap_ci95(values) == stats.bootstrap_ci95(values)


def test_nothing_has_no_mean():
    with pytest.raises(ValueError, match="no values"):
        stats.mean([])
    with pytest.raises(ValueError, match="no values"):
        stats.bootstrap_ci95([])


@pytest.mark.parametrize(
    ("text", "want"),
    [("a b c d a b c d", 1 / 5), ("a a a a a a", 2 / 3), ("one two three four five", 0), ("a b", 0), ("", 0)],
)
def test_repetition(text: str, want: float):
    assert stats.repetition(text) == pytest.approx(want)


def test_distinct_share_is_the_mean_over_texts():
    assert stats.distinct_share(["a b c d", "a a a a", ""]) == pytest.approx((1 + 0.25) / 2)


@pytest.mark.parametrize(
    ("answer", "right", "want"),
    [
        ("so it's 1,250 dollars.", "1250", True),
        ("12 and then 13.", "12", False),
        ("It is 13.0", "13", True),
        ("no number", "13", False),
        ("minus: -4", "-4", True),
    ],
)
def test_the_last_number_decides_correctness(answer: str, right: str, want: bool):
    assert stats.is_correct(answer, right) is want
