"""What weights make of probes that they are given: hidden states, and from them likelihoods and distances.

A distribution over the vocabulary is kept as its hidden state, 1 % of its size. Every figure is taken at temperature 1:
at lower ones, the same difference between two policies looks many times as large.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence

import torch
from torch import Tensor

from turnwise.training.batching import TokenText, microbatches
from turnwise.training.gate.probes import Probe
from turnwise.training.policy import HEAD_CHUNK, Policy
from turnwise.training.weights.base import Whose

Alive = Callable[[], None]


@torch.no_grad()
def read(policy: Policy, probes: Sequence[Probe], microbatch_tokens: int, alive: Alive) -> list[Tensor]:
    """Hidden states [R, H] at the positions that predict each probe's answer, under the weights now in ``policy``."""
    found: dict[int, Tensor] = {}
    rows = policy.rows_of([TokenText(i, p.prompt_ids, p.answer_ids) for i, p in enumerate(probes)])
    for group in microbatches(rows, microbatch_tokens):
        alive()
        spans = [span for row in group for span in row.spans]
        parts = policy.hidden(group).split([s.end - s.start for s in spans])
        found |= {span.sample: part for span, part in zip(spans, parts, strict=True)}
    return [found[i] for i in range(len(probes))]


@torch.no_grad()
def log_likelihoods(
    policy: Policy, hidden: Sequence[Tensor], probes: Sequence[Probe], whose: Whose = "policy"
) -> list[Tensor]:
    """Log-probs [R] of each probe's answer; ``whose`` states they are."""
    if not probes:
        return []
    tokens = torch.tensor([t for p in probes for t in p.answer_ids], device=policy.device)
    every = torch.cat(list(hidden))
    said = policy.token_logprobs(every, torch.ones(len(every), device=policy.device), tokens, whose)
    return list(said.split([len(p.answer_ids) for p in probes]))


@torch.no_grad()
def distances(
    policy: Policy,
    ours: tuple[Whose, Sequence[Tensor]],
    others: Sequence[tuple[Whose, Sequence[Tensor]]],
    wished: Collection[int] = (),
) -> list[list[float]]:
    """For each probe, KL(ours ‖ other) in nats per token, for each of ``others`` and, last, for their even mixture.

    Each comes with whose states they are. Of ``wished`` tokens none of that counts: it is the KL of what is said in
    place of them, as often as it is said. It is no less than 0 then, either.

    A policy that does half of the time what one of them does, and half of the time what another does, is at no
    distance from the mixture, and far from both.
    """
    found, aside = [], torch.tensor(sorted(wished), dtype=torch.long, device=policy.device)
    for i, hidden in enumerate(ours[1]):
        sums = [0.0] * (len(others) + 1)
        for at in range(0, len(hidden), HEAD_CHUNK):
            part = slice(at, at + HEAD_CHUNK)
            table = _table(policy, hidden[part], ours[0])
            theirs = [_table(policy, other[i][part], whose) for whose, other in others]
            mixed = torch.logsumexp(torch.stack(theirs), 0) - math.log(len(theirs))
            for k, other in enumerate([*theirs, mixed]):
                sums[k] += _divergence(table, other, aside)
        found.append([total / len(hidden) for total in sums])
    return found


def _divergence(ours: Tensor, other: Tensor, aside: Tensor) -> float:
    """Σ over positions of p (log p − log q), of log-probs [R, V]; without the tokens ``aside`` and the share they have.

    With P and Q what is left to the others: Σ p (log (p / P) − log (q / Q)).
    """
    terms = ours.exp() * (ours - other)
    if not len(aside):
        return terms.sum().item()
    mine, theirs = (table.index_fill(-1, aside, -math.inf).logsumexp(-1) for table in (ours, other))
    return (terms.index_fill(-1, aside, 0.0).sum(-1) - mine.exp() * (mine - theirs)).sum().item()


def _table(policy: Policy, hidden: Tensor, whose: Whose) -> Tensor:
    return policy.log_softmax(hidden, torch.ones(len(hidden), device=policy.device), whose)
