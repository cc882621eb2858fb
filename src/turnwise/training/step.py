"""One update: what the batch says at the weights it starts from, and the optimiser steps that follow from it.

Everything here is a function of (weights, optimiser state, batch, configuration), so an update that was interrupted
is repeated with the same result. Between two micro-batches it calls ``tick``, which may raise to stop the work. It
knows nothing of the journal, of files, or of what is served.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from turnwise.config import TrainConfig
from turnwise.errors import TurnwiseError
from turnwise.methods import METHODS
from turnwise.training import losses
from turnwise.training.algorithms.base import Seen, algorithm_of
from turnwise.training.batching import Row, merge_prefixes, microbatches, minibatches, padded_tokens, row_of
from turnwise.training.policy import HEAD_CHUNK, Policy, hinted_prompt, sampling_temperature
from turnwise.types import Batch, Sample

log = logging.getLogger(__name__)

Tick = Callable[[str, int, int], None]
"""Called as ``tick(phase, done, total)`` between units of work of a second or so; raises to stop the update."""


class BadBatch(TurnwiseError):
    """This batch cannot be trained on however often it is tried: the fault is in its data or its gradient."""


class NotFinite(BadBatch):
    """The loss of an optimiser step, or its gradient, is infinite or not a number.

    Both are looked at: where a bound cuts off a loss that is not a number, its gradient is a blameless 0.
    """


@dataclass(frozen=True, slots=True)
class Signals:
    """What is known of one sample at the start of the update; R response tokens, H hidden units.

    ``old``, ``ref``, ``weight`` and ``advantage`` are [R]. ``ref_hidden`` [R, H] and ``teacher`` [R, H] are final
    hidden states: a distribution over the vocabulary in 1 % of its size. ``teacher`` is None without a hint, and where
    the algorithm has no loss of its own on it.
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


def plan(batch: Batch, config: TrainConfig) -> list[list[int]]:
    """The sample indices of every optimiser step of the update, in order; fixed by seed and batch id."""
    return [
        step
        for epoch in range(config.epochs)
        for step in minibatches(len(batch.samples), config.minibatch, config.seed, batch.id, epoch)
    ]


def without_faults(batch: Batch, policy: Policy) -> tuple[Batch, dict[str, str]]:
    """The batch without the turns that cannot be trained on, and the fault of each of those by its id.

    Raises BadBatch when nothing is left.
    """
    faults = {s.turn_id: fault for s in batch.samples if (fault := _fault(s, policy))}
    sound = [s for s in batch.samples if s.turn_id not in faults]
    if not sound:
        raise BadBatch("; ".join(faults.values()) or "the batch has no turns")
    return replace(batch, samples=sound), faults


@torch.no_grad()
def compute_signals(policy: Policy, batch: Batch, config: TrainConfig, tick: Tick) -> list[Signals]:
    """Old, reference and teacher of each sample under the weights now in ``policy``, which must be the parent's."""
    samples = batch.samples
    if faults := [fault for s in samples if (fault := _fault(s, policy))]:
        raise BadBatch(faults[0])
    use_hints = METHODS[config.method].hints and config.w_opd > 0
    hinted = [i for i, s in enumerate(samples) if use_hints and s.hint and s.hint_at is not None]
    for sample in samples:
        if use_hints and sample.hint and sample.hint_at is None:
            log.warning("turn %s: its prompt has no user message to take the hint; left out", sample.turn_id)
    groups = microbatches(merge_prefixes(samples, range(len(samples))), config.microbatch_tokens)
    teacher_groups = microbatches([_hinted_row(policy, samples[i], i) for i in hinted], config.microbatch_tokens)
    total = len(groups) + len(teacher_groups)

    old_hidden: dict[int, Tensor] = {}
    ref_hidden: dict[int, Tensor] = {}
    teacher_hidden: dict[int, Tensor] = {}
    for done, rows in enumerate(groups):
        tick("scoring", done, total)
        old_hidden |= _by_sample(rows, policy.hidden(rows))
        with policy.reference():
            ref_hidden |= _by_sample(rows, policy.hidden(rows))
    for done, rows in enumerate(teacher_groups, start=len(groups)):
        tick("scoring", done, total)
        with policy.reference() if config.teacher == "base" else nullcontext():
            teacher_hidden |= _by_sample(rows, policy.hidden(rows))

    tokens = [torch.tensor(s.response_ids, device=policy.device) for s in samples]
    temperature = [torch.full(y.shape, sampling_temperature(s.temperature), device=policy.device)
                   for s, y in zip(samples, tokens, strict=True)]  # fmt: skip

    def logprobs(hidden: dict[int, Tensor], i: int) -> Tensor:
        return policy.token_logprobs(hidden[i], temperature[i], tokens[i])

    algorithm = algorithm_of(config)
    old = [logprobs(old_hidden, i) for i in range(len(samples))]
    taught = {i: partial(logprobs, teacher_hidden, i) for i in hinted}
    seen = [Seen(sample, old[i], taught.get(i)) for i, sample in enumerate(samples)]
    advantages = algorithm.group(seen, [algorithm.advantage(one) for one in seen])
    signals = []
    for i, sample in enumerate(samples):
        mu = None if sample.logprobs is None else torch.tensor(sample.logprobs, device=policy.device)
        signals.append(
            Signals(
                tokens=tokens[i],
                temperature=temperature[i],
                old=old[i],
                ref=logprobs(ref_hidden, i),
                ref_hidden=ref_hidden[i],
                weight=losses.importance_weight(old[i], mu, config.tis_cap),
                advantage=advantages[i],
                teacher=teacher_hidden.get(i) if algorithm.extra_loss() else None,
            )
        )
    return signals


def optimiser_step(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    signals: Sequence[Signals],
    chosen: Sequence[int],
    config: TrainConfig,
    tick: Tick,
) -> dict[str, float]:
    """Move the weights once, by the gradient over the samples at ``chosen``; returns the step's metrics.

    An exception from ``tick`` leaves weights and optimiser as they were. Raises NotFinite, and so does that.
    """
    optimizer.zero_grad()
    sums, norm = _gradient(policy, batch, signals, chosen, config, tick)
    optimizer.step()
    tokens = sums.pop("tokens")
    means = {name: sums.pop(name) / tokens for name in ("ratio", "clip_fraction")}
    extra = algorithm_of(config).extra_loss()
    return {
        "loss": sums["pg"] + config.beta_kl * sums["kl"] + (extra.weight * sums["opd"] if extra else 0.0),
        **sums,
        **means,
        "grad_norm": norm,
        "tokens": tokens,
    }


def step_without_guilty(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    signals: Sequence[Signals],
    chosen: Sequence[int],
    config: TrainConfig,
    tick: Tick,
) -> tuple[dict[str, float], list[int]]:
    """`optimiser_step` over the samples whose own gradient is finite; gives the metrics and the indices of the others.

    Raises NotFinite when none has a finite gradient, or all have one and their sum has not.
    """
    try:
        return optimiser_step(policy, optimizer, batch, signals, chosen, config, tick), []
    except NotFinite:
        guilty = []
        for done, i in enumerate(chosen):
            tick("looking for the fault", done, len(chosen))
            optimizer.zero_grad()
            try:
                _gradient(policy, batch, signals, [i], config)
            except NotFinite:
                guilty.append(i)
        rest = [i for i in chosen if i not in guilty]
        if not guilty or not rest:
            raise
        return optimiser_step(policy, optimizer, batch, signals, rest, config, tick), guilty


def sampler_gap(batch: Batch, signals: Sequence[Signals]) -> float | None:
    """Mean |log π_old − μ| per token over the samples made by the parent version, or None when there are none.

    What remains there is the numeric difference between engine and trainer: it should be no more than rounding.
    """
    gaps = [
        (signal.old.cpu() - torch.tensor(sample.logprobs)).abs()
        for sample, signal in zip(batch.samples, signals, strict=True)
        if sample.version == batch.parent and sample.logprobs is not None
    ]
    return float(torch.cat(gaps).mean()) if gaps else None


def _gradient(
    policy: Policy,
    batch: Batch,
    signals: Sequence[Signals],
    chosen: Sequence[int],
    config: TrainConfig,
    tick: Tick = lambda *_: None,
) -> tuple[dict[str, float], float]:
    """Add the clipped gradient over the samples at ``chosen``; gives sums of metrics, and its norm before the clip.

    Raises NotFinite.
    """
    weights = _stream_weights(signals, chosen, config)
    groups = microbatches(merge_prefixes(batch.samples, chosen), config.microbatch_tokens)
    sums: dict[str, float] = {}
    for done, rows in enumerate(groups):
        tick("training", done, len(groups))
        for name, value in _backward(policy, rows, signals, weights, config).items():
            sums[name] = sums.get(name, 0.0) + value
    norm = float(torch.nn.utils.clip_grad_norm_(policy.parameters(), config.grad_clip))
    if not all(map(math.isfinite, (norm, *sums.values()))):
        raise NotFinite(f"batch {batch.id}: the gradient is not finite")
    return sums, norm


@dataclass(frozen=True, slots=True)
class _StreamWeights:
    """Weight of one token of each sample (by batch index) in each term of the loss."""

    pg: dict[int, float]
    opd: dict[int, float]
    kl: dict[int, float]


def _stream_weights(signals: Sequence[Signals], chosen: Sequence[int], config: TrainConfig) -> _StreamWeights:
    """Each term is averaged over the samples that have it, over the whole optimiser step.

    A turn without a hint must not dilute the distillation of the others, nor one without a score the scored ones.
    """

    def weights(takes_part: Callable[[Signals], bool]) -> dict[int, float]:
        lengths = [signals[i].length if takes_part(signals[i]) else 0 for i in chosen]
        return dict(zip(chosen, losses.turn_weights(lengths, config.aggregation), strict=True))

    return _StreamWeights(
        pg=weights(lambda s: bool(s.advantage.any())),
        opd=weights(lambda s: s.teacher is not None),
        kl=weights(lambda s: True),
    )


def _backward(
    policy: Policy, rows: Sequence[Row], signals: Sequence[Signals], weights: _StreamWeights, config: TrainConfig
) -> dict[str, float]:
    """Add the gradient of these rows; returns sums of metrics.

    The loss is differentiated with respect to the hidden states first, a chunk of positions at a time, and then once
    through the model: logits of more than one chunk never exist together.
    """
    extra = algorithm_of(config).extra_loss()
    order = [span.sample for row in rows for span in row.spans]
    parts = [signals[i] for i in order]
    tokens = torch.cat([s.tokens for s in parts])
    temperature = torch.cat([s.temperature for s in parts])
    old, ref = torch.cat([s.old for s in parts]), torch.cat([s.ref for s in parts])
    tis, advantage = torch.cat([s.weight for s in parts]), torch.cat([s.advantage for s in parts])

    def per_token(stream: dict[int, float]) -> Tensor:
        return torch.cat([torch.full_like(signals[i].old, stream[i]) for i in order])

    w_pg, w_opd, w_kl = per_token(weights.pg), per_token(weights.opd), per_token(weights.kl)
    hidden = policy.hidden(rows, recompute=padded_tokens(rows) > config.microbatch_tokens)
    teacher = torch.cat([torch.zeros_like(s.ref_hidden) if s.teacher is None else s.teacher for s in parts])
    leaf = hidden.detach().requires_grad_()
    sums: dict[str, float] = dict.fromkeys(("pg", "kl", "opd", "ratio", "clip_fraction", "tokens"), 0.0)
    for at in range(0, len(tokens), HEAD_CHUNK):
        part = slice(at, at + HEAD_CHUNK)
        student = policy.log_softmax(leaf[part], temperature[part])
        logp = student.gather(-1, tokens[part].unsqueeze(-1)).squeeze(-1)
        surrogate, clipped = losses.clipped_surrogate(
            logp, old[part], advantage[part], tis[part], config.clip_low, config.clip_high
        )
        pg = (w_pg[part] * surrogate).sum()
        kl = (w_kl[part] * losses.k3(logp, ref[part])).sum()
        loss = pg + config.beta_kl * kl
        taught = w_opd[part].nonzero().squeeze(-1)
        if extra is not None and len(taught):
            target = policy.log_softmax(teacher[part][taught], temperature[part][taught])
            opd = (w_opd[part][taught] * extra.per_position(student[taught], target)).sum()
            loss = loss + extra.weight * opd
            sums["opd"] += opd.item()
        loss.backward()
        sums["pg"] += pg.item()
        sums["kl"] += kl.item()
        sums["ratio"] += losses.ratio(logp.detach(), old[part]).sum().item()
        sums["clip_fraction"] += clipped.sum().item()
    sums["tokens"] += len(tokens)
    assert leaf.grad is not None
    hidden.backward(leaf.grad)
    return sums


def _hinted_row(policy: Policy, sample: Sample, index: int) -> Row:
    prompt = hinted_prompt(sample.prompt_ids, sample.hint, sample.hint_at, policy.tokenizer)
    return row_of(index, prompt, sample.response_ids)


def _by_sample(rows: Sequence[Row], hidden: Tensor) -> dict[int, Tensor]:
    spans = [span for row in rows for span in row.spans]
    return dict(
        zip((s.sample for s in spans), hidden.split([s.end - s.start for s in spans]), strict=True)
    )  # fmt: skip


def _fault(sample: Sample, policy: Policy) -> str | None:
    """What would fail deep inside the model, or train on something else than was sampled; None where nothing would."""
    where = f"turn {sample.turn_id}"
    if not sample.prompt_ids or not sample.response_ids:
        return f"{where} has no prompt or no response tokens"
    if not all(0 <= i < policy.vocabulary for i in (*sample.prompt_ids, *sample.response_ids)):
        return f"{where} has token ids outside the model's vocabulary of {policy.vocabulary}"
    if sample.logprobs is not None and len(sample.logprobs) != len(sample.response_ids):
        return f"{where} has {len(sample.logprobs)} log-probs for {len(sample.response_ids)} tokens"
    if sample.hint_at is not None and not 0 <= sample.hint_at <= len(sample.prompt_ids):
        return f"{where} has its hint at {sample.hint_at}, outside the prompt"
    return None
