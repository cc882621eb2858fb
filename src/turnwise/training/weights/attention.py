"""Attention in rows with forks: each stretch of ids looks at its own text, and at nothing that a mask would hide.

A mask over a whole row has each id look at all the others and then forgets most of it: in a row of 8,192 ids that six
conversations share, attention takes four times as long as so. Here a stretch (the ids up to the next fork) is given
the keys before it in its own text, so that a row costs what is new in it. The result is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AttentionInterface, AttentionMaskInterface, PretrainedConfig
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from turnwise.training.batching import Row

BY_TEXT = "turnwise_by_text"
"""The name under which `transformers` knows this attention; without forks it is its own SDPA."""


@dataclass(frozen=True, slots=True, eq=False)
class Stretch:
    """The ids of a row from ``start`` to ``end``: which ids of the row they look at ([P + N], themselves the last),
    and what is added to that attention ([1, 1, N, P + N]); both None for a stretch that begins its row."""

    start: int
    end: int
    seen: Tensor | None
    added: Tensor | None


@dataclass(frozen=True, slots=True, eq=False)
class Stretches:
    """The stretches of each row of a pass. An object of its own: what wraps a layer hands it on as it is."""

    rows: Sequence[Sequence[Stretch]]


def stretches_of(rows: Sequence[Row], dtype: torch.dtype, device: torch.device) -> Stretches:
    """The stretches of these rows, for a model that computes in ``dtype``."""
    return Stretches([_stretches(row, dtype, device) for row in rows])


def _stretches(row: Row, dtype: torch.dtype, device: torch.device) -> list[Stretch]:
    first = row.forks[0].at if row.forks else len(row.ids)
    found = [Stretch(0, first, None, None)]
    # Of each stretch so far the ids that its last one sees: what a fork of its n-th id sees is a beginning of that.
    paths, starts = [torch.arange(first)], [0]
    for fork, end in zip(row.forks, row.ends(), strict=True):
        whose = max(n for n, start in enumerate(starts) if start <= fork.after)
        path = paths[whose]
        before = path[: int((path == fork.after).nonzero()) + 1]
        seen = torch.cat([before, torch.arange(fork.at, end)])
        visible = torch.ones(1, end - fork.at, len(seen), dtype=torch.bool).tril(len(before))
        found.append(Stretch(fork.at, end, seen.to(device), added_to(visible, dtype).to(device)))
        paths.append(seen)
        starts.append(fork.at)
    return found


def hiding(rows: Sequence[Row], width: int, dtype: torch.dtype) -> Tensor:
    """What is added to the attention of rows with forks [B, 1, W, W]: 0 where an id is seen, else a huge negative."""
    return added_to(torch.stack([seen_by(row, width) for row in rows]), dtype)


def seen_by(row: Row, width: int) -> Tensor:
    """Which ids of a row see which [W, W]. Padding sees itself, so that the mask has no empty line."""
    mine = torch.eye(width, dtype=torch.bool)
    trunk = row.forks[0].at if row.forks else len(row.ids)
    mine[:trunk, :trunk] = torch.ones(trunk, trunk, dtype=torch.bool).tril()
    for fork, end in zip(row.forks, row.ends(), strict=True):
        length = end - fork.at
        mine[fork.at : end, : fork.at] = mine[fork.after, : fork.at]
        mine[fork.at : end, fork.at : end] = torch.ones(length, length, dtype=torch.bool).tril()
    return mine


def added_to(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """What is added to the attention [B, 1, W, W] for what is seen [B, W, W]: 0, else a huge negative."""
    return torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, torch.finfo(dtype).min).unsqueeze(1)


def look_by_text(config: PretrainedConfig) -> bool:
    """Have a model with this configuration look by text where it is given stretches; False where it uses no SDPA."""
    if config._attn_implementation != "sdpa":
        return False
    config._attn_implementation = BY_TEXT
    return True


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    stretches: Stretches | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """`transformers`' SDPA of query [B, H, W, D] and key, value [B, H', W, D]: [B, W, H, D]."""
    if stretches is None:
        return cast("tuple[Tensor, None]", sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs))
    width, lines = query.shape[2], []
    for i, row in enumerate(stretches.rows):
        q, k, v = query[i : i + 1], key[i : i + 1], value[i : i + 1]
        parts: list[Tensor] = []
        for s in row:
            keys, values = (x[:, :, : s.end] if s.seen is None else x.index_select(2, s.seen) for x in (k, v))
            out, _ = sdpa_attention_forward(module, q[:, :, s.start : s.end], keys, values, s.added, **kwargs)
            parts.append(out)
        lines.append(F.pad(torch.cat(parts, dim=1), (0, 0, 0, 0, 0, width - row[-1].end)))
    return torch.cat(lines), None


AttentionInterface.register(BY_TEXT, _attend)
AttentionMaskInterface.register(BY_TEXT, sdpa_mask)
