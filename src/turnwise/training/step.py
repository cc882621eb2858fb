"""One update: what the batch says at the weights it starts from, and the optimiser steps that follow from it.

Everything here is a function of (weights, optimiser state, batch, configuration), so an update that was interrupted
is repeated with the same result. Between two micro-batches it calls ``tick``, which may raise to stop the work. It
knows nothing of the journal, of files, or of what is served.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import zip_longest

import torch
from tokenizers import Tokenizer
from torch import Tensor

from turnwise.config import Recipe, TrainConfig, of_person
from turnwise.errors import TurnwiseError
from turnwise.methods import METHODS
from turnwise.pictures.placed import inserted
from turnwise.training import losses
from turnwise.training.algorithms.base import Seen, algorithm_of
from turnwise.training.batching import (
    Row,
    TokenText,
    group_minibatches,
    microbatches,
    minibatches,
    texts_of,
)
from turnwise.training.policy import Policy, hinted_prompt, sampling_temperature
from turnwise.training.scores import ScoreHistory
from turnwise.training.terms import SUMS, Signals, TermWeights, WholeSignals, backward, recipe_of, value_of
from turnwise.training.weights.base import Whose
from turnwise.training.weights.eyes import PolicyEyes
from turnwise.training.weights.ranks import IDLE
from turnwise.types import PERSONAL, Batch, Sample

log = logging.getLogger(__name__)

Tick = Callable[[str, int, int], None]
"""Called as ``tick(phase, done, total)`` between units of work of a second or so; raises to stop the update."""


class BadBatch(TurnwiseError):
    """This batch cannot be trained on however often it is tried: the fault is in its data or its gradient."""


class NotFinite(BadBatch):
    """The loss of an optimiser step, or its gradient, is infinite or not a number.

    Both are looked at: where a bound cuts off a loss that is not a number, its gradient is a blameless 0.
    """


Recipes = Mapping[str, Recipe]
"""How each stream of rollouts is trained on; a person's turns are as `train` says."""


def plan(batch: Batch, config: TrainConfig, recipes: Recipes | None = None) -> list[list[int]]:
    """The sample indices of every optimiser step of the update, in order; fixed by seed and batch id.

    The n-th step of a pass has the n-th part of each stream, which is what it would be if that stream were alone.
    """
    how = {name: (recipes or {}).get(name) or of_person(config) for name in _streams_of(batch)}
    steps: list[list[int]] = []
    for epoch in range(max(recipe.epochs for recipe in how.values())):
        passes = [
            _pass(batch, name, recipe, config.seed, epoch) for name, recipe in how.items() if epoch < recipe.epochs
        ]
        steps += [[i for part in together for i in part] for together in zip_longest(*passes, fillvalue=[])]
    return steps


def _streams_of(batch: Batch) -> list[str]:
    return list(dict.fromkeys(s.stream for s in batch.samples))


def _pass(batch: Batch, stream: str, recipe: Recipe, seed: int, epoch: int) -> list[list[int]]:
    """The optimiser steps of one pass over the samples of a stream: sessions, or groups, stay whole."""
    ours = [i for i, s in enumerate(batch.samples) if s.stream == stream]
    samples = [batch.samples[i] for i in ours]
    by_groups = stream != PERSONAL
    cut = group_minibatches if by_groups else minibatches
    together = [s.group.id if by_groups and s.group else s.session_id for s in samples]
    return [[ours[i] for i in step] for step in cut(together, recipe.minibatch, seed, batch.id, epoch)]


def without_faults(batch: Batch, vocabulary: int, eyes: PolicyEyes | None = None) -> tuple[Batch, dict[str, str]]:
    """The batch without the turns that cannot be trained on, and the fault of each of those by its id.

    ``vocabulary``: how many token ids the model knows; ``eyes``: of one that sees pictures.
    Raises BadBatch when nothing is left.
    """
    faults = {s.turn_id: fault for s in batch.samples if (fault := _fault(s, vocabulary, eyes))}
    sound = [s for s in batch.samples if s.turn_id not in faults]
    if not sound:
        raise BadBatch("; ".join(faults.values()) or "the batch has no turns")
    return replace(batch, samples=sound), faults


@torch.no_grad()
def compute_signals(
    policy: Policy,
    batch: Batch,
    config: TrainConfig,
    tick: Tick,
    history: ScoreHistory | None = None,
    recipes: Recipes | None = None,
) -> list[WholeSignals]:
    """Old, reference and teacher of each sample under the weights now in ``policy``, which must be the parent's.

    ``history``: the scores that these weights were trained on before. ``recipes``: of the streams of rollouts.
    """
    samples = batch.samples
    if faults := [fault for s in samples if (fault := _fault(s, policy.vocabulary, policy.eyes))]:
        raise BadBatch(faults[0])
    hinted = hinted_samples(samples, config)
    # Under each weights, all that is read with them: a hinted context opens as the plain one does.
    plain = texts_of(samples, range(len(samples)))
    told = [hinted_text(policy.tokenizer, samples[i], len(samples) + i) for i in hinted]
    by_base = config.teacher == "base"
    compared = [i for i, s in enumerate(samples) if _recipe(s, config, recipes).beta_kl > 0]
    as_base = [plain[i] for i in compared]
    of_policy = _micro(policy, plain if by_base else plain + told, config)
    of_base = _micro(policy, as_base + told if by_base else as_base, config)
    of_policy, of_base = policy.ranks.deal(of_policy), policy.ranks.deal(of_base)
    total = len(of_policy) + len(of_base)

    old_hidden: dict[int, Tensor] = {}
    ref_hidden: dict[int, Tensor] = {}
    for done, rows in enumerate(of_policy):
        tick("scoring", done, total)
        old_hidden |= _by_sample(rows, policy.hidden(rows))
    with policy.reference():
        for done, rows in enumerate(of_base, start=len(of_policy)):
            tick("scoring", done, total)
            ref_hidden |= _by_sample(rows, policy.hidden(rows))
    old_hidden, ref_hidden = policy.ranks.share(old_hidden), policy.ranks.share(ref_hidden)
    by_teacher = ref_hidden if by_base else old_hidden
    teacher_hidden = {i: by_teacher.pop(len(samples) + i) for i in hinted}

    tokens = [torch.tensor(s.response_ids, device=policy.device) for s in samples]
    temperature = [torch.full(y.shape, sampling_temperature(s.temperature), device=policy.device)
                   for s, y in zip(samples, tokens, strict=True)]  # fmt: skip

    def logprobs(hidden: dict[int, Tensor], i: int, whose: Whose) -> Tensor:
        return policy.token_logprobs(hidden[i], temperature[i], tokens[i], whose)

    old = [logprobs(old_hidden, i, "policy") for i in range(len(samples))]
    taught = {i: partial(logprobs, teacher_hidden, i, "base" if by_base else "policy") for i in hinted}
    seen = [Seen(sample, old[i], taught.get(i)) for i, sample in enumerate(samples)]
    said = advantages_of(seen, config, history, recipes or {})
    signals = []
    for i, sample in enumerate(samples):
        mu = (
            None if sample.logprobs is None else torch.tensor(sample.logprobs, device=policy.device, dtype=old[i].dtype)
        )
        signals.append(
            WholeSignals(
                tokens=tokens[i],
                temperature=temperature[i],
                old=old[i],
                ref=logprobs(ref_hidden, i, "base") if i in ref_hidden else old[i],
                ref_hidden=ref_hidden.get(i),
                weight=losses.importance_weight(old[i], mu, config.tis_cap),
                advantage=said[i][0],
                takes_part=said[i][1],
                teacher=teacher_hidden.get(i) if algorithm_of(config).extra_loss() else None,
                sample=sample,
                recipe=(recipes or {}).get(sample.stream),
            )
        )
    return signals


def _recipe(sample: Sample, config: TrainConfig, recipes: Recipes | None) -> Recipe:
    return (recipes or {}).get(sample.stream) or of_person(config)


def hinted_samples(samples: Sequence[Sample], config: TrainConfig) -> list[int]:
    """Which of the samples a teacher reads the hint of."""
    if not (METHODS[config.method].hints and config.w_opd > 0):
        return []
    hinted = [i for i, s in enumerate(samples) if s.hint and s.stream == PERSONAL]
    for sample in (samples[i] for i in hinted if samples[i].hint_at is None):
        log.warning("turn %s: its prompt has no user message to take the hint; left out", sample.turn_id)
    return [i for i in hinted if samples[i].hint_at is not None]


def advantages_of(
    seen: Sequence[Seen], config: TrainConfig, history: ScoreHistory | None, recipes: Recipes
) -> dict[int, tuple[Tensor, bool]]:
    """The advantage of each sample, by its place, and whether it takes part, as the algorithm of its stream has it."""
    said: dict[int, tuple[Tensor, bool]] = {}
    for stream in dict.fromkeys(one.sample.stream for one in seen):
        ours = [i for i, one in enumerate(seen) if one.sample.stream == stream]
        beside = [seen[i] for i in ours]
        algorithm = algorithm_of(config, history, recipes[stream].method if stream in recipes else None)
        advantages = algorithm.group(beside, [algorithm.advantage(one) for one in beside])
        said |= dict(zip(ours, zip(advantages, algorithm.takes_part(beside, advantages), strict=True), strict=True))
    return said


def optimiser_step(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    signals: Sequence[WholeSignals],
    chosen: Sequence[int],
    config: TrainConfig,
    tick: Tick,
) -> dict[str, float]:
    """Move the weights once, by the gradient over the samples at ``chosen``; returns the step's metrics.

    An exception from ``tick`` leaves weights and optimiser as they were. Raises NotFinite, and so does that.
    """
    optimizer.zero_grad()
    of_streams, norm = _gradient(policy, batch, signals, chosen, config, tick)
    scale = step_scale(signals, chosen, config)
    with scaled(optimizer, scale):
        optimizer.step()
    sums = {name: sum(found[name] for found in of_streams.values()) for name in SUMS}
    tokens = sums.pop("tokens")
    means = {name: sums.pop(name) / tokens for name in ("ratio", "clip_fraction")}
    how = {signals[i].sample.stream: recipe_of(signals[i], config) for i in chosen}
    apart = {f"{name}_pg": found["pg"] for name, found in of_streams.items() if name != PERSONAL}
    return {
        "loss": value_of(of_streams, config, how),
        **sums,
        **means,
        **apart,
        "grad_norm": norm,
        "step_scale": scale,
        "tokens": tokens,
    }


def step_scale(signals: Sequence[Signals], chosen: Sequence[int], config: TrainConfig) -> float:
    """What the learning rate of this step is multiplied by: √(n / minibatch) for n samples that teach something, or 1.
    In a stream of rollouts n counts groups, and of several streams the fullest one says it.

    AdamW divides a gradient by its size, so that one turn alone would move the weights as far as a full step does. The
    noise of a mean over n samples falls with √n, and what can be trusted of a step grows so.
    """
    teaching: dict[str, set[object]] = {}
    full: dict[str, int] = {}
    for one in (signals[i] for i in chosen):
        stream, group = one.sample.stream, one.sample.group
        full[stream] = recipe_of(one, config).minibatch
        if one.teaches:
            teaching.setdefault(stream, set()).add(one.sample.turn_id if group is None else group.id)
    shares = [min(max(len(teaching.get(stream, ())), 1), most) / most for stream, most in full.items()]
    return math.sqrt(max(shares))


@contextmanager
def scaled(optimizer: torch.optim.Optimizer, scale: float) -> Iterator[None]:
    """Inside this context every learning rate is ``scale`` times what it was."""
    rates = [group["lr"] for group in optimizer.param_groups]
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate * scale
    try:
        yield
    finally:
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate


def step_without_guilty(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    signals: Sequence[WholeSignals],
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

    What remains there is the numeric difference between engine and trainer: it should be no more than rounding. Samples
    of a temperature that the backend has no log-probs at say nothing of it.
    """
    gaps = [
        (signal.old.cpu() - torch.tensor(sample.logprobs)).abs()
        for sample, signal in zip(batch.samples, signals, strict=True)
        if sample.version == batch.parent
        and sample.logprobs is not None
        and math.isclose(signal.temperature[0].item(), sampling_temperature(sample.temperature), rel_tol=1e-5)
    ]
    return float(torch.cat(gaps).mean()) if gaps else None


def _gradient(
    policy: Policy,
    batch: Batch,
    signals: Sequence[WholeSignals],
    chosen: Sequence[int],
    config: TrainConfig,
    tick: Tick = lambda *_: None,
) -> tuple[dict[str, dict[str, float]], float]:
    """Add the clipped gradient over the samples at ``chosen``; gives sums by stream, and its norm before the clip.

    Samples that have no part in it are not read. Raises NotFinite.
    """
    weights = TermWeights.of(signals, chosen, config)
    read = [i for i in chosen if signals[i].moves(config)] or chosen[:1]
    groups = policy.ranks.deal(_micro(policy, texts_of(batch.samples, read), config))
    sums: dict[str, dict[str, float]] = {}
    for done, rows in enumerate(groups):
        tick("training", done, len(groups))
        if rows is IDLE:
            policy.idle_pass()
            continue
        for stream, found in backward(policy, rows, signals, weights, config).items():
            ours = sums.setdefault(stream, dict.fromkeys(SUMS, 0.0))
            for name, value in found.items():
                ours[name] += value
    sums, norm = policy.ranks.total(sums), policy.clip_grad(config.grad_clip)
    if not all(map(math.isfinite, (norm, *(value for found in sums.values() for value in found.values())))):
        raise NotFinite(f"batch {batch.id}: the gradient is not finite")
    return sums, norm


def _micro(policy: Policy, texts: Sequence[TokenText], config: TrainConfig) -> list[list[Row]]:
    return microbatches(policy.rows_of(texts), config.microbatch_tokens)


def hinted_text(tokenizer: Tokenizer, sample: Sample, index: int) -> TokenText:
    """The sample as its teacher reads it."""
    prompt = hinted_prompt(sample.prompt_ids, sample.hint, sample.hint_at, tokenizer)
    added = len(prompt) - len(sample.prompt_ids)
    pictures = sample.pictures if sample.hint_at is None else inserted(sample.pictures, sample.hint_at, added)
    return TokenText(index, prompt, sample.response_ids, pictures)


def _by_sample(rows: Sequence[Row], hidden: Tensor) -> dict[int, Tensor]:
    spans = [span for row in rows for span in row.spans]
    return dict(
        zip((s.sample for s in spans), hidden.split([s.end - s.start for s in spans]), strict=True)
    )  # fmt: skip


def _fault(sample: Sample, vocabulary: int, eyes: PolicyEyes | None) -> str | None:
    """What would fail deep inside the model, or train on something else than was sampled; None where nothing would."""
    where = f"turn {sample.turn_id}"
    if not sample.prompt_ids or not sample.response_ids:
        return f"{where} has no prompt or no response tokens"
    if not all(0 <= i < vocabulary for i in (*sample.prompt_ids, *sample.response_ids)):
        return f"{where} has token ids outside the model's vocabulary of {vocabulary}"
    if sample.logprobs is not None and len(sample.logprobs) != len(sample.response_ids):
        return f"{where} has {len(sample.logprobs)} log-probs for {len(sample.response_ids)} tokens"
    if sample.hint_at is not None and not 0 <= sample.hint_at <= len(sample.prompt_ids):
        return f"{where} has its hint at {sample.hint_at}, outside the prompt"
    if sample.pictures:
        fault = "it has pictures, and this model sees none" if eyes is None else eyes.fault(sample)
        return fault and f"{where}: {fault}"
    return None
