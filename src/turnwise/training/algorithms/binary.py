"""Binary RL: the score, given to every response token, without normalisation (OpenClaw-RL §4.1).

Single live conversations form no group, so there is nothing to normalise against.
"""

from __future__ import annotations

import torch
from torch import Tensor

from turnwise.training.algorithms.base import Algorithm, Seen


class Binary(Algorithm):
    def advantage(self, seen: Seen) -> Tensor:
        """``w_binary · r``."""
        return self.config.w_binary * torch.full_like(seen.old, seen.sample.reward)


ALGORITHM = Binary
