"""The averages over trajectories: what a token weighs, and that what is masked is in no denominator."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.training.losses import Aggregation, turn_weights

TURNS = [(4, "a1", "a"), (2, "a1", "a"), (5, "a2", "a"), (3, "b1", "b")]
"""Tokens, rollout and group: two rollouts of one task, the first with two turns, and one of another task."""


def weights(turns: list[tuple[int, str, str]], aggregation: Aggregation) -> list[float]:
    lengths, trajectories, groups = zip(*turns, strict=True) if turns else ((), (), ())
    return turn_weights(lengths, aggregation, trajectories, groups)


def test_the_sum_over_a_trajectory_is_not_divided_by_its_turns() -> None:
    assert weights(TURNS, "trajectory-sum") == pytest.approx([1 / 16, 1 / 8, 1 / 20, 1 / 6])


def test_the_mean_over_a_trajectory_is() -> None:
    assert weights(TURNS, "trajectory-mean") == pytest.approx([1 / 32, 1 / 16, 1 / 20, 1 / 6])


@pytest.mark.parametrize("aggregation", ["trajectory-sum", "trajectory-mean"])
def test_what_is_masked_is_in_no_denominator(aggregation: Aggregation) -> None:
    """A turn of a rollout, a whole rollout, and a whole group."""
    masked = [(0, "a1", "a"), (0, "a3", "a"), (0, "c1", "c"), (0, "c2", "c")]
    assert weights([*TURNS, *masked], aggregation) == [*weights(TURNS, aggregation), 0.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("aggregation", ["trajectory-sum", "trajectory-mean"])
def test_all_masked_and_nothing_at_all_weigh_nothing(aggregation: Aggregation) -> None:
    assert weights([(0, "a1", "a")], aggregation) == [0.0]
    assert weights([], aggregation) == []


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from("wxyz")), min_size=1))
def test_every_group_weighs_the_same_in_the_mean(turns: list[tuple[int, str]]) -> None:
    """Each rollout is of the group that its name says: w and x of one, y and z of another."""
    placed = [(n, name, "one" if name in "wx" else "other") for n, name in turns]
    found = weights(placed, "trajectory-mean")
    present = {group for n, _, group in placed if n}
    for group in present:
        total = sum(w * n for w, (n, _, of) in zip(found, placed, strict=True) if of == group)
        assert total == pytest.approx(1 / len(present))
