"""Binary RL: the score, given to every response token (OpenClaw-RL §4.1), weighed by the confidence of its verdict.

Single live conversations form no group, so there is no deviation to divide by. What all scores share is taken off
(`turnwise.training.scores`).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from turnwise.training.algorithms.base import Algorithm, Seen
from turnwise.training.scores import centred


class Binary(Algorithm):
    def advantage(self, seen: Seen) -> Tensor:
        """``w_binary · r``."""
        return self.config.w_binary * torch.full_like(seen.old, seen.sample.reward)

    def group(self, batch: Sequence[Seen], advantages: Sequence[Tensor]) -> Sequence[Tensor]:
        """``w_binary`` times the baseline off each score."""
        rewards = [seen.sample.reward for seen in batch]
        shifts = [kept - r for kept, r in zip(centred(rewards, self.history), rewards, strict=True)]
        return [a + self.config.w_binary * shift for a, shift in zip(advantages, shifts, strict=True)]


ALGORITHM = Binary
