"""A program for each rank: steps of the trainer on the tiny model; the first rank writes down what came of them.

`python -m torch.distributed.run --nproc-per-node 2 -m tests.training.fsdp2.steps MODEL OUT KIND`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist

from tests.training.test_step import forked
from tests.training.tiny import batch, no_tick, sample, train_config
from turnwise.config import load_config
from turnwise.training.backends.fsdp2 import join
from turnwise.training.batching import TokenText
from turnwise.training.policy import Policy
from turnwise.training.step import compute_signals, optimiser_step
from turnwise.training.supervised import likelihood_loss, rows_of
from turnwise.training.weights.moments import moments_of
from turnwise.training.weights.ranks import ManyRanks

CASES: dict[str, dict[str, object]] = {
    "combined": {"w_opd": 0.5, "beta_kl": 0.3},
    "sampled": {"estimator": "sampled", "aggregation": "token-mean"},
    "binary": {"method": "binary", "teacher": "base", "beta_kl": 0.1},
}


def run(model: Path, kind: str, ranks: ManyRanks | None) -> dict[str, object]:
    """Gradients, metrics and weights of a few steps of each case."""
    found: dict[str, object] = {}
    for name, changes in CASES.items():
        config = train_config(weights=kind, microbatch_tokens=64, grad_clip=1e9, **changes)
        policy = Policy(model, config, ranks)
        weights = policy.weights
        start = Policy(model, config).weights
        state = {
            n: t + 0.05 * torch.randn(t.shape, generator=torch.Generator().manual_seed(len(n)))
            for n, t in start.snapshot().items()
        }
        policy.start_from(weights.mine(state))
        data = batch([*forked(), sample(8, hint=None), sample(9, reward=0.0)])
        signals = compute_signals(policy, data, config, no_tick)
        optimizer = weights.optimizer(config)
        for step in range(3):
            chosen = range(len(signals)) if step else [0, 1, 2]
            metrics = optimiser_step(policy, optimizer, data, signals, chosen, config, no_tick)
            grads = {n: weights.whole(p.grad) for n, p in weights.named().items() if p.grad is not None}
            found |= {f"{name}/{step}/metrics": metrics, f"{name}/{step}/grads": grads}
        optimizer.zero_grad()
        texts = [TokenText(i, s.prompt_ids, s.response_ids) for i, s in enumerate(data.samples)]
        found[f"{name}/likelihood"] = likelihood_loss(policy, rows_of(policy, texts), 64, no_tick, learn=True)
        found[f"{name}/imitated"] = {n: weights.whole(p.grad) for n, p in weights.named().items() if p.grad is not None}
        found[f"{name}/weights"] = {n: weights.whole(p) for n, p in weights.named().items()}
        found[f"{name}/moments"] = moments_of(weights, optimizer)
        row = torch.tensor([data.samples[0].prompt_ids], device=policy.device)
        with policy.reference(), torch.no_grad():
            found[f"{name}/base"] = policy.next_logits(
                row, torch.ones_like(row), torch.arange(row.shape[1])[None], None
            )[0]
        found[f"{name}/signals"] = [(s.old, s.ref) for s in signals]
    return found


def main() -> None:
    model, out, kind = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    ranks = join(
        load_config(overrides={"home": out.parent / "home", "train.device": "cpu", "train.rank_timeout_s": 60})
    )
    found = run(model, kind, ranks)
    if ranks.rank == 0:
        torch.save(found, out)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
