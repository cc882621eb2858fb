"""Step-index groups: each step of a rollout beside the same step of the others of its task (OpenClaw-RL §4.4.2).

The reward of step t is ``R_t = o + (1/m) Σ r_i`` with the outcome o of its rollout and the m votes of a judge on the
step. The steps with one index form a group: ``A = (R − mean) / (deviation + ε)``, with the deviation of the whole
population. A step that no other rollout got to keeps its raw R.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence

import torch
from torch import Tensor

from turnwise.training.algorithms.base import Algorithm, Seen
from turnwise.training.scores import standardised


class StepGroups(Algorithm):
    def group(self, batch: Sequence[Seen], advantages: Sequence[Tensor]) -> Sequence[Tensor]:
        """``A`` of each step, each [R]."""
        found = by_step([seen.sample.reward for seen in batch], _steps(batch))
        return [torch.full_like(seen.old, a) for seen, a in zip(batch, found, strict=True)]

    def takes_part(self, batch: Sequence[Seen], advantages: Sequence[Tensor]) -> Sequence[bool]:
        """All steps of a group, also one whose reward is the mean, or none, where all are alike."""
        steps = _steps(batch)
        moving = {step for step, a in zip(steps, advantages, strict=True) if a.any()}
        return [step in moving for step in steps]


def by_step(rewards: Sequence[float], steps: Sequence[Hashable]) -> list[float]:
    """The advantage of each reward among those with the same entry in ``steps``, which names group and index."""
    groups: dict[Hashable, list[float]] = defaultdict(list)
    for reward, step in zip(rewards, steps, strict=True):
        groups[step].append(reward)
    return [standardised([r], groups[step], population=True)[0] for r, step in zip(rewards, steps, strict=True)]


def _steps(batch: Sequence[Seen]) -> list[Hashable]:
    return [(seen.sample.group.id if seen.sample.group else seen.sample.session_id, seen.sample.step) for seen in batch]


ALGORITHM = StepGroups
