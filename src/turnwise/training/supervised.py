"""Learning answers as they stand: the mean of −log π over all tokens that are learned in an optimiser step.

Rows stand behind each other in a forward pass, each for itself, so that nothing is padded. The gradient is that of the
whole step, however its rows are put into passes. Logits exist for HEAD_CHUNK positions at a time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from turnwise.training import losses
from turnwise.training.batching import Row, TokenText, microbatches
from turnwise.training.policy import HEAD_CHUNK, Policy
from turnwise.training.step import NotFinite, Tick
from turnwise.training.weights.ranks import IDLE


def rows_of(policy: Policy, texts: Sequence[TokenText]) -> list[Row]:
    """Rows for the answers of several conversations: what those of one have in common stands once.

    Conversations stay apart: rows that grew together would be too long for a pass.
    """
    of: dict[int, list[TokenText]] = {}
    for text in texts:
        of.setdefault(text.sample, []).append(text)
    return [row for together in of.values() for row in policy.rows_of(together)]


def packs_of(rows: Sequence[Row], max_tokens: int) -> list[list[Row]]:
    """Rows that share a forward pass: at most ``max_tokens`` in each (a longer row goes alone), in few passes.

    The longest first, each where the least room is left that it fits into.
    """
    packs: list[list[Row]] = []
    room: list[int] = []
    for row in sorted(rows, key=lambda r: -len(r.ids)):
        fitting = [k for k, left in enumerate(room) if left >= len(row.ids)]
        if fitting:
            best = min(fitting, key=room.__getitem__)
            packs[best].append(row)
            room[best] -= len(row.ids)
        else:
            packs.append([row])
            room.append(max_tokens - len(row.ids))
    return packs


def learned_tokens(rows: Sequence[Row]) -> int:
    return sum(span.end - span.start for row in rows for span in row.spans)


def likelihood_loss(policy: Policy, rows: Sequence[Row], max_tokens: int, tick: Tick, *, learn: bool) -> float:
    """The mean loss in nats over the learned tokens of these rows; with ``learn`` its gradient is added."""
    total, count = 0.0, learned_tokens(rows)
    groups = policy.ranks.deal(packs_of(rows, max_tokens) if policy.packs else microbatches(rows, max_tokens))
    hidden_of = policy.packed_hidden if policy.packs else policy.hidden
    for done, group in enumerate(groups):
        tick("fine-tuning" if learn else "held-out loss", done, len(groups))
        if group is IDLE:
            policy.idle_pass(learn)
            continue
        with torch.set_grad_enabled(learn):
            hidden = hidden_of(group, recompute=sum(len(row.ids) for row in group) > max_tokens)
        tokens = torch.tensor([i for row in group for s in row.spans for i in row.ids[s.start : s.end]])
        total += _head(policy, hidden, tokens.to(policy.device), count, learn)
    return policy.ranks.total({"": {"loss": total}})[""]["loss"]


def _head(policy: Policy, hidden: Tensor, tokens: Tensor, count: int, learn: bool) -> float:
    """The part of the mean that these positions have; with ``learn`` its gradient goes on into the model."""
    leaf, total = hidden.detach().requires_grad_(learn), 0.0
    for at in range(0, len(tokens), HEAD_CHUNK):
        part = slice(at, at + HEAD_CHUNK)
        with torch.set_grad_enabled(learn):
            logp = torch.log_softmax(policy.logits(leaf[part]), dim=-1)
            loss = losses.negative_log_likelihood(logp, tokens[part]).sum() / count
        if learn:
            loss.backward()
        total += loss.item()
    if learn:
        assert leaf.grad is not None
        hidden.backward(leaf.grad)
    return total


def supervised_step(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    rows: Sequence[Row],
    lr: float,
    max_tokens: int,
    grad_clip: float,
    tick: Tick,
) -> dict[str, float]:
    """One optimiser step at this learning rate; gives its ``loss`` before it and the ``grad_norm`` before the clip.

    An exception from ``tick`` leaves weights and optimiser as they were. Raises NotFinite, and so does that.
    """
    optimizer.zero_grad()
    try:
        loss = likelihood_loss(policy, rows, max_tokens, tick, learn=True)
        norm = policy.clip_grad(grad_clip)
    except BaseException:
        optimizer.zero_grad()
        raise
    if not (math.isfinite(loss) and math.isfinite(norm)):
        optimizer.zero_grad()
        raise NotFinite(f"the loss is {loss}, and the norm of its gradient {norm}")
    for group in optimizer.param_groups:
        group["lr"] = lr
    optimizer.step()
    return {"loss": loss, "grad_norm": norm}
