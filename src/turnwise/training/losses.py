"""Losses: the clipped surrogate, its importance weight, the KL terms and how token losses are averaged.

Pure functions on log-probabilities (natural log); the formulas are those of docs/training.md. They never run a model
and hold no state. Averages are written as one weight per turn, computed from the whole optimiser step, so that
summing over micro-batches or ranks gives the same gradient as one big batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Literal

import torch
from torch import Tensor

Divergence = Literal["reverse", "forward"]
Aggregation = Literal["turn-mean", "token-mean", "trajectory-sum", "trajectory-mean"]

LOG_RATIO_LIMIT = 20.0
"""Log-ratios are cut at ± this before ``exp``: e^20 is a finite number with a finite gradient, e^100 is neither."""


def importance_weight(old: Tensor, sampled: Tensor | None, cap: float) -> Tensor:
    """Truncated importance weight ``clamp(exp(log π_old − μ), 0, cap)`` per token. [R] -> [R].

    Corrects for the gap between the engine that sampled and the trainer, and for staleness. ``sampled`` (μ) is None
    where the engine recorded nothing, ``cap`` is 0 where the weight is switched off: both give 1.
    """
    if sampled is None or cap == 0:
        return torch.ones_like(old)
    return ratio(old, sampled).clamp(max=cap).detach()


def clipped_surrogate(
    logp: Tensor, old: Tensor, advantage: Tensor, weight: Tensor, clip_low: float, clip_high: float
) -> tuple[Tensor, Tensor]:
    """``−w · min(ρA, clip(ρ, 1 − ε_low, 1 + ε_high) A)`` with ``ρ = exp(logp − old)``, all [N] (OpenClaw-RL eq. 1).

    Returns the loss per token and a mask of the tokens whose gradient the clip cut off.
    """
    rho = ratio(logp, old)
    plain = rho * advantage
    clipped = rho.clamp(1 - clip_low, 1 + clip_high) * advantage
    return -weight * torch.minimum(plain, clipped), clipped < plain


def k3(logp: Tensor, ref: Tensor) -> Tensor:
    """``e^d − d − 1`` with ``d = log π_ref − log π_θ``: estimates KL(π_θ ‖ π_ref) per token, never negative. [N]

    ``d`` is cut at ± LOG_RATIO_LIMIT; beyond it the term has no gradient.
    """
    d = (ref - logp).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    return d.expm1() - d  # for small d the same, without what `exp` loses beside 1


def ratio(logp: Tensor, other: Tensor) -> Tensor:
    """``exp(logp − other)``, with the log-ratio cut at ± LOG_RATIO_LIMIT. [N]"""
    return (logp - other).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()


def divergence(student: Tensor, teacher: Tensor, direction: Divergence) -> Tensor:
    """KL between two distributions given as log-probs over the same bins, per position. [N, V] and [N, V] -> [N].

    ``reverse`` is ``Σ π_θ (log π_θ − log π_T)``, the expectation of the sampled distillation loss; ``forward`` is
    ``Σ π_T (log π_T − log π_θ)``, which covers all of the teacher's modes. The gradient flows to the student alone.
    A bin of probability 0 under the distribution that is summed over adds 0; one of 0 under the other alone, infinity.
    """
    teacher = teacher.detach()
    p, q = (student, teacher) if direction == "reverse" else (teacher, student)
    gap = (p - q).masked_fill(p == float("-inf"), 0.0)  # 0 · (−inf − −inf) is not a number, and its limit is 0
    return (p.exp() * gap).sum(-1)


def top_tokens(teacher: Tensor, k: int) -> Tensor:
    """Ids of the teacher's k most likely tokens; at least one token is left for the tail. [N, V] -> [N, k]."""
    return teacher.topk(min(k, teacher.shape[-1] - 1), dim=-1).indices


def fold_tail(logp: Tensor, ids: Tensor) -> Tensor:
    """Keep the log-probs of ``ids`` and fold all other mass into one last bin. [N, V], [N, k] -> [N, k + 1].

    The tail is summed from the other tokens rather than taken as one minus the kept mass, which cancels near 1.
    """
    rest = logp.scatter(-1, ids, float("-inf"))
    nothing = rest.amax(-1, keepdim=True) == float("-inf")  # the gradient of its logsumexp is not a number
    tail = rest.masked_fill(nothing, 0.0).logsumexp(-1, keepdim=True).masked_fill(nothing, float("-inf"))
    return torch.cat([logp.gather(-1, ids), tail], dim=-1)


def negative_log_likelihood(logp: Tensor, tokens: Tensor) -> Tensor:
    """``−log π_θ`` of each token, the loss of learning answers as they stand. [N, V] and [N] -> [N]."""
    return -logp.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)


def turn_weights(
    lengths: Sequence[int],
    aggregation: Aggregation,
    trajectories: Sequence[Hashable] = (),
    groups: Sequence[Hashable] = (),
) -> list[float]:
    """The weight of one token of each turn, such that the aggregate is ``Σ_i weight_i · Σ_k loss_ik``.

    ``lengths`` are the response tokens of the turns that take part in a term, over the whole optimiser step; a turn
    that takes no part (masked, no score, no hint) has length 0, gets weight 0, and is in no denominator.
    ``trajectories`` and ``groups`` name for each turn its rollout and that one's group, where these are averaged over.
    """
    if aggregation in ("trajectory-sum", "trajectory-mean"):
        return _trajectory_weights(lengths, aggregation == "trajectory-mean", trajectories, groups)
    if aggregation == "token-mean":
        total = sum(lengths)
        return [1 / total if n else 0.0 for n in lengths]
    turns = sum(1 for n in lengths if n)
    return [1 / (turns * n) if n else 0.0 for n in lengths]


def _trajectory_weights(
    lengths: Sequence[int], mean: bool, trajectories: Sequence[Hashable], groups: Sequence[Hashable]
) -> list[float]:
    """``(1/G) Σ_i Σ_t [Σ_k l / n]`` of each group (OpenWebRL §4.4), with ``mean`` also divided by the turns T_i of a
    trajectory (MT-GRPO), and the mean of that over the groups."""
    places = [(trajectory, group) for n, trajectory, group in zip(lengths, trajectories, groups, strict=True) if n]
    turns = Counter(trajectory for trajectory, _ in places)
    rollouts = Counter(dict(places).values())
    return [
        1 / (len(rollouts) * rollouts[group] * (turns[trajectory] if mean else 1) * n) if n else 0.0
        for n, trajectory, group in zip(lengths, trajectories, groups, strict=True)
    ]
