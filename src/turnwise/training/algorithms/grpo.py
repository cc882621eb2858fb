"""GRPO over trajectories: how much better a rollout ended than the others of its task, given to each of its tokens.

``A_i = (R_i − μ_G) / (σ_G + ε)`` with the outcome R of a trajectory, mean and sample deviation over the trajectories of
its group (DeepSeekMath §4.1.2; OpenWebRL §4.4). A trajectory counts once, however many turns it has.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from turnwise.training.algorithms.base import Algorithm, Seen
from turnwise.training.scores import standardised


class Grpo(Algorithm):
    def group(self, batch: Sequence[Seen], advantages: Sequence[Tensor]) -> Sequence[Tensor]:
        """``A_i``, each [R]."""
        found = [against_its_group(seen.sample.reward, outcomes_of(seen)) for seen in batch]
        return [torch.full_like(seen.old, a) for seen, a in zip(batch, found, strict=True)]

    def takes_part(self, batch: Sequence[Seen], advantages: Sequence[Tensor]) -> Sequence[bool]:
        """All of a group, also one whose outcome is the mean, or none, where all outcomes are alike."""
        return [any(against_its_group(o, outcomes_of(seen)) for o in outcomes_of(seen)) for seen in batch]


def outcomes_of(seen: Seen) -> tuple[float, ...]:
    """The outcomes that a sample is compared with, its own among them."""
    return seen.sample.group.outcomes if seen.sample.group else (seen.sample.reward,)


def against_its_group(outcome: float, group: Sequence[float]) -> float:
    """The advantage of a trajectory; a group of one keeps its outcome, and one of equal outcomes gives 0."""
    return standardised([outcome], group, population=False)[0]


ALGORITHM = Grpo
