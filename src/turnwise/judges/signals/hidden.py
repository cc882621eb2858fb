"""Fits the layer of units between a model's states and what the head says. Run by `fit.py` alone, with torch.

A line that was fitted to people who talk in their own way as well took plain corrections for praise; units do not
(docs/judge.md). What a unit weighs is kept in a few whole numbers, so that a file of a head stays small.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from turnwise.judges.signals.head import Hidden, Vector

UNITS = 96
LEVELS = 3
"""Weights are whole numbers from -LEVELS to LEVELS. Cross-validated, rounding to 3 or 7 levels changed nothing."""
WIDEST = 3.0
"""Times the root of their mean square, where a unit's weights are cut."""
PASSES = 60
BATCH = 128
LEAST_STEPS = 1000
"""With few rows there are more passes, until so many steps."""
RATE = 1e-3
DECAY = 0.1
FEATURES_DROPPED = 0.4
"""Share of the features that a step does without. With 0.2 more corrections were praise, with 0.5 less was right."""
UNITS_DROPPED = 0.5
SMOOTHING = 0.05
"""Share of each label that is spread over all: without it the head is far too sure."""
LARGEST = 6e4
"""What a number of sixteen bits holds, with room for rounding."""


def shortened(x: Vector) -> NDArray[np.float16]:
    """With six bits of fraction: normal numbers are off by 0.8 % at most, and the zeros behind them take no room in a
    file. Numbers from 65,504 on become infinite."""
    bits = x.astype(np.float16).view(np.uint16).astype(np.uint32)
    return ((bits + 8) & 0xFFF0).astype(np.uint16).view(np.float16)


@dataclass(frozen=True, slots=True)
class Sentences:
    """Sentences to learn from: features ``x`` [S, D], and whether each says how to answer (``wanted`` [S], 0 or 1)."""

    x: Vector
    wanted: NDArray[np.int64]


def fit_hidden(
    x: Vector, labels: NDArray[np.int64], sentences: Sentences, units: int = UNITS
) -> tuple[Hidden, Vector, Vector]:
    """The layer, and what the scores and the chance to be directive make of its units: weights [4, U] and bias [4].

    ``x`` [N, D]: of replies; ``labels`` [N], of -1, 0 and 1. The same rows give the same layer on one machine.
    """
    import torch
    from torch.nn import functional

    # What is divided by need not be exact: in few bits it takes little room, and is what the layer is fitted with.
    mean, scale = x.mean(0), shortened(np.minimum(x.std(0) + 1e-3, LARGEST)).astype(np.float32)
    whole, each = (torch.tensor((rows - mean) / scale) for rows in (x, sentences.x))
    score, directive = torch.tensor(labels + 1), torch.tensor(sentences.wanted, dtype=torch.float32)
    smooth = directive * (1 - SMOOTHING) + SMOOTHING / 2
    batches = -(-len(whole) // BATCH)
    passes = max(PASSES, -(-LEAST_STEPS // batches))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # sums in one order
    try:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            layer, out = torch.nn.Linear(x.shape[1], units), torch.nn.Linear(units, 4)
            adam = torch.optim.AdamW([*layer.parameters(), *out.parameters()], lr=RATE, weight_decay=DECAY)
            rate = torch.optim.lr_scheduler.OneCycleLR(adam, RATE, total_steps=passes * batches)

            def odds(rows: torch.Tensor) -> torch.Tensor:
                seen = torch.relu(layer(functional.dropout(rows, FEATURES_DROPPED)))
                return out(functional.dropout(seen, UNITS_DROPPED))

            for _ in range(passes):
                parts = (torch.randperm(len(rows)).tensor_split(batches) for rows in (whole, each))
                for some, said in zip(*parts, strict=True):
                    scored = functional.cross_entropy(odds(whole[some])[:, :3], score[some], label_smoothing=SMOOTHING)
                    told = functional.binary_cross_entropy_with_logits(odds(each[said])[:, 3], smooth[said])
                    loss = scored + (told if len(said) else 0.0)
                    adam.zero_grad()
                    loss.backward()
                    adam.step()
                    rate.step()
    finally:
        torch.set_num_threads(threads)
    found = layer.weight.detach().numpy()
    step = WIDEST * np.sqrt((found**2).mean(1)) / LEVELS + 1e-12
    numbers = np.clip(np.round(found / step[:, None]), -LEVELS, LEVELS).astype(np.int8)
    bias = layer.bias.detach().numpy() - (numbers @ (mean / scale)) * step
    hidden = Hidden(numbers, step, bias.astype(np.float32), scale)
    return hidden, out.weight.detach().numpy(), out.bias.detach().numpy()
