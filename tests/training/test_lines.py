"""A line through states: its arithmetic, and how far from it something is of the other kind."""

from __future__ import annotations

import torch

from tests.training.tiny import ids, no_tick
from turnwise.training.kinds.lines import AT_ONCE, DEPTHS, RIDGE, _least, beyond, sides, states_after
from turnwise.training.policy import Policy


def test_the_line_is_that_of_ridge_regression() -> None:
    """In its primal form: w = (XᵀX + λDH·I)⁻¹ Xᵀy of the scaled states, which is the same line."""
    made = torch.Generator().manual_seed(1)
    sizes = torch.tensor([[3.0], [40.0]])  # of the two depths
    states, said = (torch.randn(n, 2, 5, generator=made).double() * sizes for n in (12, 4))
    labels = torch.tensor([1.0, -1.0] * 6)
    scale = states.std(0).mean(-1, keepdim=True)
    x, others = (states / scale).reshape(12, 10), (said / scale).reshape(4, 10)
    weights = torch.linalg.solve(x.T @ x + RIDGE * 10 * torch.eye(10, dtype=torch.double), x.T @ labels.double())
    assert torch.allclose(sides(states, labels, said), others @ weights, atol=1e-9)
    resized = torch.tensor([[7.0], [0.1]])
    assert torch.allclose(sides(resized * states, labels, resized * said), others @ weights, atol=1e-9)


def test_few_additions_are_taken_for_endings_by_a_line_of_other_wishes() -> None:
    """Of twenty additions one lies far among the endings: so far may be mistaken, and nothing nearer is an ending."""
    states = torch.tensor([[[1.0, 0.0]]] * 20 + [[[-1.0, 0.0]]] * 19 + [[[0.6, 0.0]]])
    states += 0.01 * torch.randn(40, 1, 2, generator=torch.Generator().manual_seed(2))
    labels, wishes = torch.tensor([1.0] * 20 + [-1.0] * 20), [f"wish {n % 20}" for n in range(40)]
    least, seen = _least(states, labels, wishes), sides(states, labels, states)
    assert (seen[20:] > least).tolist() == [False] * 19 + [True] and (seen[:20] > least).all()
    assert least > seen[20:39].max(), "what is an addition for certain is far from the limit"


def test_a_pair_is_not_measured_by_a_line_that_knows_its_wish() -> None:
    """Each wish has a direction of its own here: of the others a line learns nothing about it."""
    labels = torch.tensor([1.0, -1.0] * 10)
    states = (torch.eye(20) * 5).unsqueeze(1)
    assert (sides(states, labels, states) * labels > 0.1).all(), "a line of all pairs knows each"
    assert abs(_least(states, labels, [f"wish {n}" for n in range(20)])) < 1e-9


def test_what_is_asked_about_is_beyond_the_limit_or_not() -> None:
    states = torch.tensor([[[1.0, 0.0]]] * 20 + [[[-1.0, 0.0]]] * 20)
    states += 0.01 * torch.randn(40, 1, 2, generator=torch.Generator().manual_seed(2))
    asked = torch.tensor([[[1.0, 0.0]], [[-1.3, 0.0]], [[1.2, 0.1]], [[-1.2, 0.0]]])
    labels, groups = [1.0] * 20 + [-1.0] * 20, list(range(40))
    assert beyond(states, labels, groups, asked) == [True, False, True, False]
    assert beyond(states, [-label for label in labels], groups, asked) == [False, True, False, True]


def test_prompts_are_read_some_at_a_time_with_ticks_between(policy: Policy) -> None:
    ticks: list[int] = []
    prompts = [ids(n, 5) for n in range(AT_ONCE + 3)]
    found = states_after(policy, prompts, lambda _phase, done, _of: ticks.append(done))
    assert ticks == [0, AT_ONCE]
    assert torch.allclose(found, policy.states_within(prompts, DEPTHS), atol=1e-5)
    assert torch.equal(states_after(policy, prompts[-2:], no_tick), found[-2:])
