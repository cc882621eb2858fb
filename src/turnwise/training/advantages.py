"""Advantages: what a score and a hint say about each response token (docs/training.md, "Signals").

Pure functions on tensors of one turn or one batch. They never run a model: the log-probs come from the trainer's own
forward passes, all at the turn's sampling temperature.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def binary(reward: float, length: int) -> Tensor:
    """The score, given to every response token, without normalisation (OpenClaw-RL §4.1).

    Single live conversations form no group, so there is nothing to normalise against. Returns [length].
    """
    return torch.full((length,), float(reward))


def distillation(teacher: Tensor, old: Tensor) -> Tensor:
    """``log π_T − log π_old`` of the sampled tokens, without gradient (OpenClaw-RL §4.2, Algorithm 2). [R] and [R].

    Both must come from the same weights at the same temperature: then an empty hint gives 0.
    """
    return (teacher - old).detach()


def subtract_mean(advantages: Sequence[Tensor]) -> list[Tensor]:
    """Take the mean over all tokens of the batch off each distillation advantage.

    The expectation of ``log π_T − log π_old`` over the policy's own tokens is −KL ≤ 0. With a few dozen samples, the
    raw advantage therefore pushes down whatever was sampled, and entropy grows until the answers are no language. A
    constant baseline leaves the gradient's expectation unchanged and removes that drift. Pass the hinted turns only.
    """
    if not advantages:
        return []
    mean = torch.cat(list(advantages)).mean()
    return [a - mean for a in advantages]


def combine(binary_term: Tensor, opd_term: Tensor | None, w_binary: float, w_opd: float) -> Tensor:
    """``w_binary · r + w_opd · (log π_T − log π_old)`` (OpenClaw-RL §4.3); no hint means a second term of exactly 0."""
    combined = w_binary * binary_term
    return combined if opd_term is None else combined + w_opd * opd_term
