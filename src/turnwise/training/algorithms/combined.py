"""Scores and hints together, the default: ``w_binary · r`` beside ``w_opd`` times the distillation (OpenClaw-RL §4.3).

A turn without a hint has no distillation term, and one judged 0 no score term.
"""

from __future__ import annotations

from turnwise.training.algorithms.binary import Binary
from turnwise.training.algorithms.opd import Opd


class Combined(Binary, Opd):
    """The score's hook and those of the hint: no two of them are the same."""


ALGORITHM = Combined
