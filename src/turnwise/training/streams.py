"""The loss of a micro-batch, as a sum of streams: policy gradient, distillation, and the KL to the base model.

Each stream is averaged over the turns of the whole optimiser step that have it (`StreamWeights`), so that micro-batches
add up to the gradient of one big batch. Logits exist for HEAD_CHUNK positions at a time, and here alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from turnwise.config import TrainConfig
from turnwise.training import losses
from turnwise.training.algorithms.base import algorithm_of
from turnwise.training.batching import Row, padded_tokens
from turnwise.training.policy import HEAD_CHUNK, Policy, at_temperature

SUMS = ("pg", "kl", "k3", "opd", "ratio", "clip_fraction", "tokens")
"""What `backward` gives. The first four are the streams' shares in the step's averages, the others sums over tokens."""


@dataclass(frozen=True, slots=True)
class Signals:
    """What is known of one sample at the start of the update; R response tokens, H hidden units.

    ``old``, ``ref``, ``weight`` and ``advantage`` are [R]; log-probs are of the turn's sampling temperature.
    ``ref_hidden`` [R, H] and ``teacher`` [R, H] are final hidden states: a distribution over the vocabulary in 1 % of
    its size, at any temperature. ``teacher`` is None without a hint, and where the algorithm has no loss of its own on
    it.
    """

    tokens: Tensor
    temperature: Tensor
    old: Tensor
    ref: Tensor
    ref_hidden: Tensor
    weight: Tensor
    advantage: Tensor
    teacher: Tensor | None

    @property
    def length(self) -> int:
        return len(self.tokens)

    @property
    def teaches(self) -> bool:
        """Whether more than the KL to the base model comes of it."""
        return self.teacher is not None or bool(self.advantage.any())


@dataclass(frozen=True, slots=True)
class StreamWeights:
    """Weight of one token of each sample (by batch index) in each term of the loss."""

    pg: dict[int, float]
    opd: dict[int, float]
    kl: dict[int, float]

    @classmethod
    def of(cls, signals: Sequence[Signals], chosen: Sequence[int], config: TrainConfig) -> StreamWeights:
        """Each term is averaged over the samples that have it, over the whole optimiser step.

        A turn without a hint must not dilute the distillation of the others, nor one without a score the scored ones.
        """

        def weights(takes_part: Callable[[Signals], bool]) -> dict[int, float]:
            lengths = [signals[i].length if takes_part(signals[i]) else 0 for i in chosen]
            return dict(zip(chosen, losses.turn_weights(lengths, config.aggregation), strict=True))

        return cls(
            pg=weights(lambda s: bool(s.advantage.any())),
            opd=weights(lambda s: s.teacher is not None),
            kl=weights(lambda s: True),
        )


@dataclass(frozen=True, slots=True)
class _Positions:
    """The signals of all response positions of a micro-batch, [N] or [N, H], or of a chunk of them."""

    tokens: Tensor
    temperature: Tensor
    old: Tensor
    ref: Tensor
    ref_hidden: Tensor
    teacher: Tensor
    tis: Tensor
    advantage: Tensor
    w_pg: Tensor
    w_opd: Tensor
    w_kl: Tensor

    @classmethod
    def of(cls, signals: Sequence[Signals], order: Sequence[int], weights: StreamWeights) -> _Positions:
        parts = [signals[i] for i in order]

        def joined(of: Callable[[Signals], Tensor]) -> Tensor:
            return torch.cat([of(s) for s in parts])

        def per_token(stream: dict[int, float]) -> Tensor:
            return torch.cat([torch.full_like(signals[i].old, stream[i]) for i in order])

        return cls(
            tokens=joined(lambda s: s.tokens),
            temperature=joined(lambda s: s.temperature),
            old=joined(lambda s: s.old),
            ref=joined(lambda s: s.ref),
            ref_hidden=joined(lambda s: s.ref_hidden),
            teacher=joined(lambda s: torch.zeros_like(s.ref_hidden) if s.teacher is None else s.teacher),
            tis=joined(lambda s: s.weight),
            advantage=joined(lambda s: s.advantage),
            w_pg=per_token(weights.pg),
            w_opd=per_token(weights.opd),
            w_kl=per_token(weights.kl),
        )

    def part(self, at: slice) -> _Positions:
        return _Positions(*(getattr(self, name)[at] for name in self.__slots__))


def backward(
    policy: Policy, rows: Sequence[Row], signals: Sequence[Signals], weights: StreamWeights, config: TrainConfig
) -> dict[str, float]:
    """Add the gradient of these rows; returns the SUMS.

    The loss is differentiated with respect to the hidden states first, a chunk of positions at a time, and then once
    through the model: logits of more than one chunk never exist together.
    """
    everything = _Positions.of(signals, [span.sample for row in rows for span in row.spans], weights)
    hidden = policy.hidden(rows, recompute=padded_tokens(rows) > config.microbatch_tokens)
    leaf = hidden.detach().requires_grad_()
    sums = dict.fromkeys(SUMS, 0.0) | {"tokens": float(len(everything.tokens))}
    for at in range(0, len(everything.tokens), HEAD_CHUNK):
        part = slice(at, at + HEAD_CHUNK)
        loss, measured = _loss(policy, leaf[part], everything.part(part), config)
        loss.backward()
        for name, value in measured.items():
            sums[name] += value
    assert leaf.grad is not None
    hidden.backward(leaf.grad)
    return sums


def _loss(policy: Policy, hidden: Tensor, at: _Positions, config: TrainConfig) -> tuple[Tensor, dict[str, float]]:
    """The loss of a chunk of positions, and its part of the sums.

    The surrogate compares probabilities of what was sampled, at the temperature it was sampled at. The divergences
    compare models, at temperature 1: at 0.1 the gradient of the same turn is near a hundred times as long, and one
    greedy turn would drown its step.
    """
    logits = policy.logits(hidden)
    own = torch.log_softmax(logits, dim=-1)
    logp = at_temperature(logits, at.temperature).gather(-1, at.tokens.unsqueeze(-1)).squeeze(-1)
    surrogate, clipped = losses.clipped_surrogate(logp, at.old, at.advantage, at.tis, config.clip_low, config.clip_high)
    base = torch.log_softmax(policy.logits(at.ref_hidden).detach(), dim=-1)
    pg = (at.w_pg * surrogate).sum()
    kl = (at.w_kl * losses.divergence(own, base, "reverse")).sum()
    loss, opd = pg + config.beta_kl * kl, 0.0
    extra, taught = algorithm_of(config).extra_loss(), at.w_opd.nonzero().squeeze(-1)
    if extra is not None and len(taught):
        target = torch.log_softmax(policy.logits(at.teacher[taught]).detach(), dim=-1)
        pulled = (at.w_opd[taught] * extra.per_position(own[taught], target)).sum()
        loss, opd = loss + extra.weight * pulled, pulled.item()
    logp = logp.detach()
    return loss, {
        "pg": pg.item(),
        "kl": kl.item(),
        "k3": (at.w_kl * losses.k3(logp, at.ref)).sum().item(),
        "opd": opd,
        "ratio": losses.ratio(logp, at.old).sum().item(),
        "clip_fraction": clipped.sum().item(),
    }
