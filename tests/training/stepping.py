"""Training steps on the tiny model, and what they did to it."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from tests.training.tiny import batch, no_tick
from turnwise.config import TrainConfig
from turnwise.training.policy import Policy
from turnwise.training.step import compute_signals, optimiser_step
from turnwise.types import Sample


def update(folder: Path, samples: list[Sample], config: TrainConfig, steps: int = 1) -> tuple[list[float], list[dict]]:
    """Train on the samples; gives the change of each answer's log-prob and the metrics."""
    policy = Policy(folder, config)
    data = batch(samples)
    before = compute_signals(policy, data, config, no_tick)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=config.lr, weight_decay=0.0)
    everyone = range(len(samples))
    metrics = [optimiser_step(policy, optimizer, data, before, everyone, config, no_tick) for _ in range(steps)]
    after = compute_signals(policy, data, config, no_tick)
    return [(a.old - b.old).sum().item() for a, b in zip(after, before, strict=True)], metrics


def gradient(folder: Path, samples: list[Sample], config: TrainConfig, chosen: list[int]) -> list[Tensor]:
    """The gradient itself: clipping would give two gradients of different size the same length."""
    config = config.model_copy(update={"grad_clip": 1e9})
    policy = Policy(folder, config)
    data = batch(samples)
    signals = compute_signals(policy, data, config, no_tick)
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.0)
    optimiser_step(policy, optimizer, data, signals, chosen, config, no_tick)
    return [p.grad.clone() for p in policy.parameters() if p.grad is not None]


def assert_close(a: list[Tensor], b: list[Tensor], part: float = 1e-4) -> None:
    """No number differs by more than this part of the largest one."""
    scale = max(x.abs().max().item() for x in a)
    assert scale > 0
    for x, y in zip(a, b, strict=True):
        assert (x - y).abs().max().item() < part * scale
