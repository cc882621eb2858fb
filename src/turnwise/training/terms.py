"""The loss of a micro-batch, as a sum of terms of each stream: policy gradient, distillation, KL to the base model.

Each term is averaged over the turns of the whole optimiser step that have it (`TermWeights`), so that micro-batches
add up to the gradient of one big batch. Logits exist for HEAD_CHUNK positions at a time, and here alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from turnwise.config import Recipe, TrainConfig, of_person
from turnwise.training import losses
from turnwise.training.algorithms.base import algorithm_of
from turnwise.training.batching import Row, padded_tokens
from turnwise.training.policy import HEAD_CHUNK, Policy, at_temperature
from turnwise.types import Sample

SUMS = ("pg", "kl", "k3", "opd", "ratio", "clip_fraction", "tokens")
"""What `backward` gives. The first four are the terms' shares in the step's averages, the others sums over tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """What every backend knows of one sample at the start of the update; R response tokens.

    ``old``, ``ref``, ``weight`` and ``advantage`` are [R]; log-probs are of ``temperature`` [R], the turn's own where a
    backend can have them so. ``takes_part``: whether the policy gradient is averaged over it. ``recipe``: how its
    stream is trained, and None for a person's turn, which is as `train` says.
    """

    tokens: Tensor
    temperature: Tensor
    old: Tensor
    ref: Tensor
    weight: Tensor
    advantage: Tensor
    takes_part: bool
    sample: Sample
    recipe: Recipe | None = None

    @property
    def length(self) -> int:
        return len(self.tokens)

    @property
    def has_teacher(self) -> bool:
        """Whether a loss of its own pulls towards a teacher's distribution."""
        return False

    @property
    def teaches(self) -> bool:
        """Whether more than the KL to the base model comes of it."""
        return self.has_teacher or bool(self.advantage.any())

    def moves(self, config: TrainConfig) -> bool:
        """Whether it has any part in the gradient."""
        return self.teaches or recipe_of(self, config).beta_kl > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeSignals(Signals):
    """What is known where the model is at hand: whole distributions beside the sampled tokens' log-probs.

    ``ref_hidden`` [R, H] and ``teacher`` [R, H] are final hidden states: a distribution over the vocabulary in 1 % of
    its size, at any temperature. ``ref_hidden`` is None where the stream has no KL to the base model, and ``teacher``
    without a hint, and where the algorithm has no loss of its own on it.
    """

    ref_hidden: Tensor | None
    teacher: Tensor | None

    @property
    def has_teacher(self) -> bool:
        return self.teacher is not None


@dataclass(frozen=True, slots=True)
class TermWeights:
    """Weight of one token of each sample (by batch index) in each term of the loss."""

    pg: dict[int, float]
    opd: dict[int, float]
    kl: dict[int, float]

    @classmethod
    def of(cls, signals: Sequence[Signals], chosen: Sequence[int], config: TrainConfig) -> TermWeights:
        """Each term is averaged over the samples of a stream that have it, over the whole optimiser step.

        A turn without a hint must not dilute the distillation of the others, nor one without a score the scored ones,
        nor one stream another.
        """
        found = cls({}, {}, {})
        for stream in dict.fromkeys(signals[i].sample.stream for i in chosen):
            of_stream = [i for i in chosen if signals[i].sample.stream == stream]
            recipe = recipe_of(signals[of_stream[0]], config)
            samples = [signals[i].sample for i in of_stream]
            trajectories = [s.session_id for s in samples]
            groups = [s.group.id if s.group else s.session_id for s in samples]

            def weights(
                takes_part: Callable[[Signals], bool],
                of_stream: list[int] = of_stream,
                recipe: Recipe = recipe,
                places: tuple[list[str], list[str]] = (trajectories, groups),
            ) -> dict[int, float]:
                lengths = [signals[i].length if takes_part(signals[i]) else 0 for i in of_stream]
                each = losses.turn_weights(lengths, recipe.aggregation, *places)
                return {i: recipe.weight * w for i, w in zip(of_stream, each, strict=True)}

            found.pg.update(weights(lambda s: s.takes_part))
            found.opd.update(weights(lambda s: s.has_teacher))
            found.kl.update(weights(lambda s: True))
        return found


def recipe_of(signals: Signals, config: TrainConfig) -> Recipe:
    """How a sample is trained on."""
    return signals.recipe or of_person(config)


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
    def of(cls, signals: Sequence[WholeSignals], order: Sequence[int], weights: TermWeights) -> _Positions:
        parts = [signals[i] for i in order]

        def joined(of: Callable[[WholeSignals], Tensor]) -> Tensor:
            return torch.cat([of(s) for s in parts])

        def per_token(term: dict[int, float]) -> Tensor:
            return torch.cat([torch.full_like(signals[i].old, term[i]) for i in order])

        def hidden(of: Callable[[WholeSignals], Tensor | None]) -> Tensor:
            """Zeros, which nothing reads, for samples without them; [N, 0] where none has them."""
            wide = max((found.shape[-1] for s in parts if (found := of(s)) is not None), default=0)
            return torch.cat([s.old.new_zeros(s.length, wide) if (h := of(s)) is None else h for s in parts])

        return cls(
            tokens=joined(lambda s: s.tokens),
            temperature=joined(lambda s: s.temperature),
            old=joined(lambda s: s.old),
            ref=joined(lambda s: s.ref),
            ref_hidden=hidden(lambda s: s.ref_hidden),
            teacher=hidden(lambda s: s.teacher),
            tis=joined(lambda s: s.weight),
            advantage=joined(lambda s: s.advantage),
            w_pg=per_token(weights.pg),
            w_opd=per_token(weights.opd),
            w_kl=per_token(weights.kl),
        )

    def part(self, at: slice | Tensor) -> _Positions:
        return _Positions(*(getattr(self, name)[at] for name in self.__slots__))


def backward(
    policy: Policy, rows: Sequence[Row], signals: Sequence[WholeSignals], weights: TermWeights, config: TrainConfig
) -> dict[str, dict[str, float]]:
    """Add the gradient of these rows; returns the SUMS of each stream.

    The loss is differentiated with respect to the hidden states first, a chunk of positions at a time, and then once
    through the model: logits of more than one chunk never exist together.
    """
    order = [span.sample for row in rows for span in row.spans]
    everything = _Positions.of(signals, order, weights)
    hidden = policy.hidden(rows, recompute=padded_tokens(rows) > config.microbatch_tokens)
    leaf = hidden.detach().requires_grad_()
    sums: dict[str, dict[str, float]] = {}
    for stream, recipe, places in _by_stream(signals, order, config):
        ours = sums.setdefault(stream, dict.fromkeys(SUMS, 0.0))
        for part in places:
            loss, measured = _loss(policy, leaf[part], everything.part(part), recipe, config)
            loss.backward()
            for name, value in measured.items():
                ours[name] += value
    assert leaf.grad is not None
    hidden.backward(leaf.grad)
    return sums


def _by_stream(
    signals: Sequence[Signals], order: Sequence[int], config: TrainConfig
) -> Iterator[tuple[str, Recipe, list[slice] | list[Tensor]]]:
    """The positions of each stream among those of the samples in ``order``, in chunks of at most HEAD_CHUNK."""
    streams = [signals[i].sample.stream for i in order]
    lengths = torch.tensor([signals[i].length for i in order])
    for stream in dict.fromkeys(streams):
        recipe = recipe_of(next(signals[i] for i in order if signals[i].sample.stream == stream), config)
        if len(set(streams)) == 1:
            chunks = [slice(at, at + HEAD_CHUNK) for at in range(0, int(lengths.sum()), HEAD_CHUNK)]
        else:
            ours = torch.tensor([name == stream for name in streams])
            at = ours.repeat_interleave(lengths).nonzero().squeeze(-1)
            chunks = list(at.to(signals[order[0]].tokens.device).split(HEAD_CHUNK))
        yield stream, recipe, chunks


def _loss(
    policy: Policy, hidden: Tensor, at: _Positions, recipe: Recipe, config: TrainConfig
) -> tuple[Tensor, dict[str, float]]:
    """The loss of a chunk of positions of one stream, and its part of the sums.

    The surrogate compares probabilities of what was sampled, at the temperature it was sampled at. The divergences
    compare models, at temperature 1: at 0.1 the gradient of the same turn is near a hundred times as long, and one
    greedy turn would drown its step.
    """
    logits = policy.logits(hidden)
    own = torch.log_softmax(logits, dim=-1)
    logp = at_temperature(logits, at.temperature).gather(-1, at.tokens.unsqueeze(-1)).squeeze(-1)
    surrogate, clipped = losses.clipped_surrogate(logp, at.old, at.advantage, at.tis, config.clip_low, config.clip_high)
    pg = (at.w_pg * surrogate).sum()
    loss, kl, opd = pg, 0.0, 0.0
    if recipe.beta_kl:
        base = torch.log_softmax(policy.logits(at.ref_hidden, "base").detach(), dim=-1)
        apart = (at.w_kl * losses.divergence(own, base, "reverse")).sum()
        loss, kl = loss + recipe.beta_kl * apart, apart.item()
    extra, taught = algorithm_of(config, method=recipe.method).extra_loss(), at.w_opd.nonzero().squeeze(-1)
    if extra is not None and len(taught):
        teacher = policy.logits(at.teacher[taught], "base" if config.teacher == "base" else "parent")
        target = torch.log_softmax(teacher.detach(), dim=-1)
        pulled = (at.w_opd[taught] * extra.per_position(own[taught], target)).sum()
        loss, opd = loss + extra.weight * pulled, pulled.item()
    logp = logp.detach()
    return loss, {
        "pg": pg.item(),
        "kl": kl,
        "k3": (at.w_kl * losses.k3(logp, at.ref)).sum().item(),
        "opd": opd,
        "ratio": losses.ratio(logp, at.old).sum().item(),
        "clip_fraction": clipped.sum().item(),
        "tokens": float(len(at.tokens)),
    }


def value_of(sums: Mapping[str, Mapping[str, float]], config: TrainConfig, how: Mapping[str, Recipe]) -> float:
    """The loss of a step from the sums of each stream; ``how`` is the recipe of each."""
    total = 0.0
    for stream, found in sums.items():
        extra = algorithm_of(config, method=how[stream].method).extra_loss()
        total += found["pg"] + how[stream].beta_kl * found["kl"] + (extra.weight * found["opd"] if extra else 0.0)
    return total
