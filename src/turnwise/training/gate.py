"""The gate: whether a trained candidate may serve in place of its parent.

A score can rise while the answers turn to gibberish, so the candidate is measured on what a score does not see: how
likely well-judged answers still are, how far it left the base model, and whether short answers loop, explode or
vanish. `decide` is a pure function of those numbers; `measure` takes them. The gate never publishes anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from turnwise.config import GateConfig, TrainConfig
from turnwise.training import losses
from turnwise.training.batching import merge_prefixes, microbatches, row_of
from turnwise.training.policy import HEAD_CHUNK, Policy, sampling_temperature
from turnwise.training.step import Signals, Tick
from turnwise.types import Batch, Sample

ANSWERS = 4
"""Prompts of the batch that the candidate answers; with ANSWER_TOKENS, a few seconds on a laptop."""
ANSWER_TOKENS = 32
LONGEST_PROMPT = 1024
"""Prompts longer than this are not answered: reading one would take longer than the rest of the gate."""


@dataclass(frozen=True, slots=True)
class Measurements:
    """What the gate looks at. A figure that could not be taken is None, and is not held against the candidate.

    ``nll_rise``: nats per token by which recorded well-judged answers became less likely than under the parent.
    ``kl``: KL(candidate ‖ base) in nats per token, mean over the batch's response positions.
    ``repetition``: share of 4-grams of sampled answers that were there before. ``length_ratio``: mean length of the
    sampled answers over that of the recorded ones, both cut at ANSWER_TOKENS.
    """

    nll_rise: float | None
    kl: float
    repetition: float | None
    length_ratio: float | None
    probes: int
    answers: int


def decide(m: Measurements, config: GateConfig) -> dict[str, Any]:
    """The gate's result as it is recorded: ``accepted``, the ``reasons`` of a refusal, and the measurements."""
    reasons = []
    if m.nll_rise is not None and not m.nll_rise <= config.max_nll_rise:
        reasons.append(f"well-judged answers lost {m.nll_rise:.2f} nats per token (limit {config.max_nll_rise})")
    if not m.kl <= config.max_kl:
        reasons.append(f"the policy is {m.kl:.2f} nats per token from the base model (limit {config.max_kl})")
    if m.repetition is not None and not m.repetition <= config.max_repetition:
        reasons.append(f"{m.repetition:.0%} of its 4-grams are repetitions (limit {config.max_repetition:.0%})")
    if m.length_ratio is not None and not 1 / config.max_length_ratio <= m.length_ratio <= config.max_length_ratio:
        reasons.append(f"its answers are {m.length_ratio:.2f} times as long (limit {config.max_length_ratio} times)")
    return {"accepted": not reasons, "reasons": reasons, **asdict(m)}


def repetition(answers: Sequence[Sequence[int]]) -> float | None:
    """Share of the 4-grams of each answer that it has had before, over all answers; None without any 4-gram."""
    seen = [[tuple(a[i : i + 4]) for i in range(len(a) - 3)] for a in answers]
    total = sum(len(grams) for grams in seen)
    return 1 - sum(len(set(grams)) for grams in seen) / total if total else None


@torch.no_grad()
def measure(
    policy: Policy,
    parent: dict[str, Tensor] | None,
    batch: Batch,
    signals: Sequence[Signals],
    probes: Sequence[Sample],
    config: TrainConfig,
    tick: Tick,
) -> Measurements:
    """Measure the candidate, whose weights are in ``policy`` before and after. ``signals`` are the batch's."""
    kl = _kl_to_base(policy, batch, signals, config, tick)
    asked = [s for s in batch.samples if len(s.prompt_ids) <= LONGEST_PROMPT][:ANSWERS]
    tick("gate", 1, 3)
    answers = _answers(policy, asked, config.seed)
    tick("gate", 2, 3)
    nll_rise = None
    if probes:
        candidate = policy.state()
        after = _mean_nll(policy, probes, config)
        policy.load(parent)
        nll_rise = after - _mean_nll(policy, probes, config)
        policy.load(candidate)
    return Measurements(
        nll_rise=nll_rise,
        kl=kl,
        repetition=repetition(answers),
        length_ratio=_length_ratio(answers, [s.response_ids for s in asked]),
        probes=len(probes),
        answers=len(answers),
    )


def _kl_to_base(policy: Policy, batch: Batch, signals: Sequence[Signals], config: TrainConfig, tick: Tick) -> float:
    total, tokens = 0.0, 0
    for rows in microbatches(merge_prefixes(batch.samples, range(len(batch.samples))), config.microbatch_tokens):
        tick("gate", 0, 3)
        parts = [signals[span.sample] for row in rows for span in row.spans]
        ours = policy.hidden(rows).split(HEAD_CHUNK)
        base = torch.cat([s.ref_hidden for s in parts]).split(HEAD_CHUNK)
        temperature = torch.cat([s.temperature for s in parts]).split(HEAD_CHUNK)
        for h, b, t in zip(ours, base, temperature, strict=True):
            kl = losses.divergence(policy.log_softmax(h, t), policy.log_softmax(b, t), "reverse")
            total += kl.sum().item()
            tokens += len(kl)
    return total / tokens


def _mean_nll(policy: Policy, samples: Sequence[Sample], config: TrainConfig) -> float:
    """Mean over samples of the mean −log p of their response tokens, at the recorded temperature."""
    total = 0.0
    for rows in microbatches(
        [row_of(i, s.prompt_ids, s.response_ids) for i, s in enumerate(samples)], config.microbatch_tokens
    ):
        chosen = [samples[span.sample] for row in rows for span in row.spans]
        tokens = torch.tensor([y for s in chosen for y in s.response_ids], device=policy.device)
        temperature = torch.tensor(
            [sampling_temperature(s.temperature) for s in chosen for _ in s.response_ids], device=policy.device
        )
        logprobs = policy.token_logprobs(policy.hidden(rows), temperature, tokens)
        total -= sum(part.mean().item() for part in logprobs.split([len(s.response_ids) for s in chosen]))
    return total / len(samples)


def _answers(policy: Policy, samples: Sequence[Sample], seed: int) -> list[list[int]]:
    answers = []
    for temperature, group in groupby(sorted(samples, key=lambda s: s.temperature), key=lambda s: s.temperature):
        answers += policy.sample([s.prompt_ids for s in group], temperature, ANSWER_TOKENS, seed)
    return answers


def _length_ratio(answers: Sequence[Sequence[int]], recorded: Sequence[Sequence[int]]) -> float | None:
    if not answers:
        return None
    return sum(min(len(a), ANSWER_TOKENS) for a in answers) / sum(min(len(r), ANSWER_TOKENS) for r in recorded)
