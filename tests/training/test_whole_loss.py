"""The whole loss by value and by gradient, against a naive one (naive.py).

They are compared on a first step, where every ratio is 1, and on a second.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.training.naive import Naive, mixed
from tests.training.tiny import batch, no_tick, shake, train_config
from turnwise.training.policy import Policy
from turnwise.training.step import compute_signals, optimiser_step

pytestmark = pytest.mark.usefixtures("both_weights")
W_OPD, BETA = 0.5, 0.3


@pytest.mark.parametrize("aggregation", ["turn-mean", "token-mean"])
@pytest.mark.parametrize(
    ("estimator", "divergence"),
    [("exact", "reverse"), ("exact", "forward"), ("topk", "reverse"), ("topk", "forward"), ("sampled", "reverse")],
)
def test_two_steps_equal_the_naive_loss(tiny_dir: Path, estimator: str, divergence: str, aggregation: str) -> None:
    config = train_config(
        estimator=estimator,
        divergence=divergence,
        aggregation=aggregation,
        top_k=20,
        w_opd=W_OPD,
        beta_kl=BETA,
        grad_clip=1e9,
        microbatch_tokens=64,
    )
    policy, samples = Policy(tiny_dir, config), mixed()
    shake(policy)
    naive = Naive(policy, samples, config)
    signals = compute_signals(policy, batch(samples), config, no_tick)
    assert {float(s.weight.max()) for s in signals} > {1.0, 2.0}, "missing, capped and in between"
    optimizer = torch.optim.AdamW(policy.parameters(), lr=0.02, weight_decay=0.0)
    metrics: list[dict[str, float]] = []
    for _ in range(2):
        loss, expected = naive.gradient(range(len(samples)))
        metrics.append(optimiser_step(policy, optimizer, batch(samples), signals, range(len(samples)), config, no_tick))
        assert metrics[-1]["loss"] == pytest.approx(loss, rel=1e-4)
        scale = max(g.abs().max().item() for g in expected)
        for parameter, g in zip(policy.parameters(), expected, strict=True):
            assert parameter.grad is not None
            assert (parameter.grad - g).abs().max().item() < 1e-4 * scale
    assert metrics[0]["ratio"] == pytest.approx(1.0, abs=1e-4)
    assert abs(metrics[1]["ratio"] - 1) > 0.05
    assert metrics[0]["clip_fraction"] == 0 < metrics[1]["clip_fraction"]
