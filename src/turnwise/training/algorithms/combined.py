"""Scores and hints together, the default: ``w_binary · r`` beside ``w_opd`` times the distillation (OpenClaw-RL §4.3).

A turn without a hint has no distillation term, and one judged 0 no score term.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from turnwise.training.algorithms.base import Seen
from turnwise.training.algorithms.binary import Binary
from turnwise.training.algorithms.opd import Opd


class Combined(Binary, Opd):
    """The score's hooks and those of the hint; each has its own baseline."""

    def group(self, batch: Sequence[Seen], advantages: Sequence[Tensor]) -> Sequence[Tensor]:
        return Opd.group(self, batch, Binary.group(self, batch, advantages))


ALGORITHM = Combined
