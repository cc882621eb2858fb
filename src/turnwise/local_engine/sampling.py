"""Choosing the next token of every running request at once, with its log-probability.

The log-prob is of ``log_softmax(logits / T)`` over the whole vocabulary, before min-p, top-k and top-p cut it, and
T = 0 counts as 1: the one distribution that the trainer recomputes. Penalties change the logits themselves before that
(`penalties`). Uniform numbers come from outside.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from turnwise.local_engine.requests import RequestParams

_BLOCK = 64
_NUCLEUS = 1024
"""Candidates looked at before the whole vocabulary is sorted: almost every nucleus fits, and top-k is far cheaper."""


def sample(logits: Tensor, params: Sequence[RequestParams], uniforms: Sequence[float]) -> tuple[list[int], list[float]]:
    """One token id and its log-prob for each row of ``logits`` [B, V].

    ``uniforms`` [B] in [0, 1) decide the sampled rows, by inverting the cumulative distribution.
    """
    temperatures = torch.tensor([p.temperature or 1.0 for p in params], dtype=torch.float32)
    logprobs = torch.log_softmax(logits / temperatures[:, None], dim=-1)  # float32, as the temperatures are
    chosen = torch.zeros(len(params), dtype=torch.long)
    greedy = [i for i, p in enumerate(params) if p.temperature == 0]
    if greedy:
        chosen[greedy] = logprobs[greedy].argmax(dim=-1)
    whole = [i for i, p in enumerate(params) if p.temperature > 0 and not _cuts(p)]
    if whole:
        rows = logprobs if len(whole) == len(params) else logprobs[whole]
        chosen[whole] = _invert(rows.exp(), [uniforms[i] for i in whole])
    for i, p in enumerate(params):
        if p.temperature > 0 and _cuts(p):
            probs, ids = _candidates(logprobs[i].exp(), p)
            chosen[i] = ids[_invert(probs[None], [uniforms[i]])[0]]
    picked = logprobs.gather(1, chosen[:, None])[:, 0]
    return chosen.tolist(), picked.tolist()


def _cuts(params: RequestParams) -> bool:
    return params.top_p < 1 or params.top_k > 0 or params.min_p > 0


def _candidates(probs: Tensor, params: RequestParams) -> tuple[Tensor, Tensor]:
    """The probabilities and ids that min-p, then top-k and then top-p leave, most likely first."""
    size = probs.numel()
    keep = min(params.top_k or size, size)
    if params.min_p > 0:
        likely = probs >= params.min_p * probs.max()
        probs = probs.where(likely, 0.0)
        keep = min(keep, int(likely.sum()))
    values, ids = probs.topk(min(keep, _NUCLEUS))
    mass = float(probs.sum()) if keep == size else float(probs.topk(keep).values.sum())
    if values.numel() < keep and float(values.sum()) < params.top_p * mass:
        values, ids = probs.topk(keep)
    # A token stays when the mass before it is below p, so that the first one always does.
    before = values.double().cumsum(0) - values
    stay = int((before < params.top_p * mass).sum())
    return values[: max(stay, 1)], ids[: max(stay, 1)]


def _invert(probs: Tensor, uniforms: Sequence[float]) -> Tensor:
    """The first index whose cumulative probability exceeds ``u`` times the total: [B] from [B, K].

    First the block in which that happens, and then the place in it: a running sum over a whole vocabulary of 150,000
    takes longer than a layer of the model.
    """
    blocks = F.pad(probs, (0, -probs.shape[-1] % _BLOCK)).unflatten(-1, (-1, _BLOCK))
    ends = blocks.sum(-1, dtype=torch.float64).cumsum(-1)
    goal = torch.tensor(uniforms, dtype=torch.float64)[:, None] * ends[:, -1:]
    block = _exceeds(ends, goal)
    before = F.pad(ends, (1, 0)).gather(1, block)
    rows = torch.arange(len(probs))
    place = _exceeds(blocks[rows, block[:, 0]].double().cumsum(-1), goal - before)
    return (block * _BLOCK + place)[:, 0]


def _exceeds(cumulative: Tensor, goal: Tensor) -> Tensor:
    """The first index [B, 1] at which the running sum exceeds the goal, and adds to it, whatever rounding does."""
    within = torch.minimum(goal.clamp(min=0), torch.nextafter(cumulative[:, -1:], torch.zeros((), dtype=torch.float64)))
    return torch.searchsorted(cumulative, within, right=True)
