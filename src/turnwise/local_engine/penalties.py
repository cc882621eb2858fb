"""Penalties on what was said before: the logits that a token is then sampled from, in vLLM's order and meaning.

The repetition penalty divides the logits above 0 (and multiplies those below) of every token in prompt or answer; the
frequency and the presence penalty subtract for each time, and once, that a token stands in the answer alone. Recorded
log-probs are of these logits: they are the ones that were sampled from.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from turnwise.local_engine.requests import RequestParams

History = tuple[Sequence[int], int]
"""All token ids of a request, and how many of them are its prompt."""


def penalised(logits: Tensor, params: Sequence[RequestParams], histories: Sequence[History]) -> Tensor:
    """``logits`` [B, V] with each row's penalties applied; the same tensor where no row has any."""
    rows = [i for i, p in enumerate(params) if p.penalised]
    if not rows:
        return logits
    logits = logits.float().clone()
    for i in rows:
        _apply(logits[i], params[i], *histories[i])
    return logits


def _apply(row: Tensor, params: RequestParams, tokens: Sequence[int], prompt_len: int) -> None:
    """Change one row [V] in place."""
    if params.repetition_penalty != 1.0:
        said = torch.tensor(tokens).unique()
        before = row[said]
        row[said] = torch.where(before > 0, before / params.repetition_penalty, before * params.repetition_penalty)
    answered, times = torch.tensor(tokens[prompt_len:], dtype=torch.long).unique(return_counts=True)
    row[answered] -= params.frequency_penalty * times + params.presence_penalty
