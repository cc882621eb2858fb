"""What a rollout's outcome says of its tokens: GRPO over trajectories, step-index groups, dynamic sampling."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.training.tiny import sample, train_config
from turnwise.sampling import has_spread, step_reward
from turnwise.training.algorithms.base import Seen
from turnwise.training.algorithms.grpo import Grpo
from turnwise.training.algorithms.step_groups import StepGroups, by_step
from turnwise.training.scores import EPSILON, standardised
from turnwise.types import TaskGroup

outcomes = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=9)


def step(n: int, group: TaskGroup, reward: float, index: int = 0, session: str | None = None) -> Seen:
    """Three tokens of step ``index`` of a rollout."""
    named = {"session_id": session or f"session-{n}", "group": group, "step": index, "stream": "terminal"}
    return Seen(sample(n, reward=reward, hint=None, **named), torch.zeros(3), None)


def grpo(batch: list[Seen], **settings: Any) -> tuple[list[float], list[bool]]:
    return advantages(Grpo, batch, **settings)


def advantages(
    kind: type[Grpo] | type[StepGroups], batch: list[Seen], **settings: Any
) -> tuple[list[float], list[bool]]:
    algorithm = kind(train_config(**settings))
    found = algorithm.group(batch, [algorithm.advantage(one) for one in batch])
    for one, a in zip(batch, found, strict=True):
        assert a.shape == one.old.shape
        assert len(set(a.tolist())) == 1, "each token of a turn has the same advantage"
    return [a[0].item() for a in found], list(algorithm.takes_part(batch, found))


# -- GRPO over trajectories -----------------------------------------------------------------------------------------


def test_a_trajectory_is_measured_by_mean_and_deviation_of_its_group() -> None:
    group = TaskGroup("a", (1.0, 0.0, 0.0, 0.0))
    found, part = grpo([step(n, group, o) for n, o in enumerate(group.outcomes)])
    assert found == pytest.approx([0.75 / (0.5 + EPSILON), *([-0.25 / (0.5 + EPSILON)] * 3)])
    assert part == [True] * 4


def test_a_long_trajectory_counts_once() -> None:
    group = TaskGroup("a", (1.0, 0.0))
    long = [step(n, group, 1.0, n, "long") for n in range(5)]
    found, _ = grpo([*long, step(9, group, 0.0)])
    assert found == pytest.approx([math.sqrt(0.5)] * 5 + [-math.sqrt(0.5)], rel=1e-5)


def test_a_trajectory_without_a_token_counts_in_its_group() -> None:
    group = TaskGroup("a", (1.0, 0.0, 0.0))  # the third said nothing
    found, _ = grpo([step(1, group, 1.0), step(2, group, 0.0)])
    assert found[0] == pytest.approx((1 - 1 / 3) / (math.sqrt(1 / 3) + EPSILON))


def test_groups_do_not_see_each_other() -> None:
    one, other = TaskGroup("a", (1.0, 0.0)), TaskGroup("b", (5.0, 5.0, 5.0))
    found, part = grpo([step(1, one, 1.0), step(2, one, 0.0), *(step(n, other, 5.0) for n in (3, 4, 5))])
    assert found[2:] == [0.0, 0.0, 0.0]
    assert part == [True, True, False, False, False], "a constant group is in no denominator"


def test_an_outcome_that_is_the_mean_of_its_group_takes_part() -> None:
    group = TaskGroup("a", (0.0, 0.5, 1.0))
    found, part = grpo([step(n, group, o) for n, o in enumerate(group.outcomes)])
    assert found[1] == 0.0
    assert part == [True] * 3


@pytest.mark.parametrize(("outcome", "part"), [(0.5, True), (-2.0, True), (0.0, False)])
def test_a_group_of_one_keeps_its_raw_outcome(outcome: float, part: bool) -> None:
    assert grpo([step(1, TaskGroup("a", (outcome,)), outcome)]) == ([outcome], [part])


@given(outcomes, st.booleans())
def test_advantages_of_a_group_add_up_to_nothing_and_keep_its_order(group: list[float], population: bool) -> None:
    found = standardised(group, group, population=population)
    assert math.isclose(math.fsum(found), 0.0, abs_tol=1e-6)
    assert max(map(abs, found)) <= math.sqrt(len(group))
    assert all(a <= b for (_, a), (_, b) in zip(
        sorted(zip(group, found, strict=True)), sorted(zip(group, found, strict=True))[1:], strict=False))  # fmt: skip


@given(st.floats(-1e6, 1e6), st.integers(2, 9))
def test_a_constant_group_says_exactly_nothing(outcome: float, size: int) -> None:
    assert standardised([outcome] * size, [outcome] * size, population=True) == [0.0] * size


# -- step-index groups ----------------------------------------------------------------------------------------------


def test_steps_with_one_index_form_a_group() -> None:
    group = TaskGroup("a", (1.0, 0.0))
    batch = [
        step(1, group, 2.0, 0, "x"),
        step(2, group, 0.0, 1, "x"),
        step(3, group, 0.0, 0, "y"),
        step(4, group, 1.0, 1, "y"),
    ]
    found, part = advantages(StepGroups, batch)
    assert found == pytest.approx([1.0, -1.0, -1.0, 1.0], rel=1e-5)
    assert part == [True] * 4


def test_a_step_that_no_other_got_to_keeps_its_raw_reward() -> None:
    group = TaskGroup("a", (1.0, 0.0))
    batch = [step(1, group, 1.0, 0, "x"), step(2, group, -0.5, 7, "x"), step(3, group, 0.0, 0, "y")]
    assert advantages(StepGroups, batch)[0][1] == -0.5


def test_a_constant_step_takes_no_part_and_one_at_the_mean_does() -> None:
    group = TaskGroup("a", (1.0, 0.0, 0.5))
    same = [step(n, group, 0.5, 0, f"s{n}") for n in range(3)]
    other = [step(3 + n, group, o, 1, f"s{n}") for n, o in enumerate(group.outcomes)]
    found, part = advantages(StepGroups, [*same, *other])
    assert (found[:3], found[5]) == ([0.0] * 3, 0.0)
    assert part == [False] * 3 + [True] * 3


def test_the_same_index_of_another_task_is_another_group() -> None:
    assert by_step([1.0, 3.0], [("a", 0), ("b", 0)]) == [1.0, 3.0]


def test_nothing_in_gives_nothing_out() -> None:
    assert by_step([], []) == []
    assert advantages(Grpo, []) == ([], [])


@pytest.mark.parametrize(
    ("method", "outcome", "votes", "reward"),
    [
        ("step_groups", 1.0, [1, -1, 1], 1 + 1 / 3),
        ("step_groups", 0.0, [-1.0], -1.0),
        ("step_groups", 0.5, [], 0.5),  # the last step: nothing came back to it
        ("grpo", 1.0, [-1, -1], 1.0),
    ],
)
def test_a_step_is_worth_the_outcome_and_the_mean_of_its_votes(
    method: str, outcome: float, votes: list[float], reward: float
) -> None:
    assert step_reward(method, outcome, votes) == pytest.approx(reward)


# -- dynamic sampling -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("group", "kept"), [([1.0, 0.0], True), ([1.0, 1.0], False), ([0.1] * 3, False), ([0.3], True), ([], False)]
)
def test_a_group_that_ended_alike_is_dropped(group: list[float], kept: bool) -> None:
    assert has_spread(group) == kept
