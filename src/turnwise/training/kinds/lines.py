"""Lines through a model's states: which of two kinds a text is, told by labelled texts that the base model reads.

A small model that is asked a question says Yes to almost anything; its states know more than it says. A line is fitted
in the states of whichever model is trained, so that nothing is shipped for one model and no other one is left out.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from importlib.resources import files

import torch
from torch import Tensor

from turnwise.training.policy import Policy
from turnwise.training.step import Tick

DEPTHS = 0.6, 0.8
"""Behind these shares of the model's blocks its states are read; the last ones are about the next word."""
AT_ONCE = 32
"""Prompts that are read between two ticks."""
RIDGE = 0.3
"""Weight of the line's squared length; measured with the endings of wishes."""
MISTAKEN = 0.05
"""Share of the labelled texts of the kind that is to stay that may be taken for the other one."""


def rows_of(file: str) -> list[list[str]]:
    """The labelled rows of a file of this folder, each with its columns, without the names of these."""
    text = files("turnwise.training.kinds").joinpath(file).read_text(encoding="utf-8")
    return [line.split("\t") for line in text.splitlines()[1:]]


def states_after(policy: Policy, prompts: Sequence[Sequence[int]], tick: Tick) -> Tensor:
    """The base model's states [n, len(DEPTHS), H] after each prompt, which are remembered."""
    found = []
    for start in range(0, len(prompts), AT_ONCE):
        tick("comparing", start, len(prompts))
        found.append(policy.states_within(prompts[start : start + AT_ONCE], DEPTHS))
    return torch.cat(found)


def beyond(states: Tensor, labels: Sequence[float], groups: Sequence[Hashable], asked: Tensor) -> list[bool]:
    """Which of the states ``asked`` [m, D, H] are of the kind 1 of labelled ones [n, D, H], kinds 1 and -1."""
    return [margin > 0 for margin in margins(states, labels, groups, asked)]


def margins(states: Tensor, labels: Sequence[float], groups: Sequence[Hashable], asked: Tensor) -> list[float]:
    """How far states ``asked`` [m, D, H] are on the side of the kind 1 of labelled ones [n, D, H], kinds 1 and -1.

    Above 0 they are further on it than all but ``MISTAKEN`` of the kind -1 are, each of them seen by a line through the
    other ``groups`` alone. The labelled ones are 1 or -1 from the middle of the two kinds.
    """
    kinds = torch.tensor(labels)
    return (sides(states, kinds, asked) - _least(states, kinds, groups)).tolist()


def sides(states: Tensor, labels: Tensor, asked: Tensor) -> Tensor:
    """On which side [m] of a line through labelled states [n, D, H] others [m, D, H] lie.

    Ridge regression in dual form; each depth has the same scale.
    """
    scale = states.double().std(0).mean(-1, keepdim=True)
    known, others = ((each.double() / scale).flatten(1) for each in (states, asked))
    products, likeness = (each @ known.T / known.shape[1] for each in (known, others))
    weights = torch.linalg.solve(products + RIDGE * torch.eye(len(known), dtype=torch.double), labels.double())
    return likeness @ weights


def _least(states: Tensor, labels: Tensor, groups: Sequence[Hashable]) -> Tensor:
    """How far on the side of the kind 1 few of the kind -1 are, a number, each seen by a line of other groups."""
    found = torch.zeros(len(labels), dtype=torch.double)
    for group in set(groups):
        own = torch.tensor([group == other for other in groups])
        found[own] = sides(states[~own], labels[~own], states[own])
    return found[labels < 0].quantile(1 - MISTAKEN)
