"""One update of each method comes to the figures that are written down: refactoring may not move a gradient.

The figures stand in golden.json. On a machine of the kind that wrote them the gradient and the weights must have the
very same bits; another processor, or another torch, rounds in another way. Written anew, where a formula is to change:
`python -m tests.training.test_golden`.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.training.tiny import batch, make_model, no_tick, sample, shake, train_config
from turnwise.training.policy import Policy
from turnwise.training.step import compute_signals, optimiser_step

FILE = Path(__file__).parent / "golden.json"
CASES: dict[str, dict[str, Any]] = {
    "binary": {"method": "binary", "w_binary": 0.5},
    "opd, exact": {"method": "opd", "w_opd": 2.0},
    "opd, topk": {"method": "opd", "estimator": "topk", "top_k": 20, "divergence": "forward"},
    "opd, sampled": {"method": "opd", "estimator": "sampled"},
    "opd, base": {"method": "opd", "teacher": "base"},
    "combined, exact": {"w_binary": 0.5, "w_opd": 2.0},
    "combined, sampled": {"estimator": "sampled", "w_binary": 0.5, "w_opd": 2.0},
    "combined, token-mean": {"aggregation": "token-mean", "microbatch_tokens": 64, "divergence": "forward"},
    "combined, no hints": {"w_opd": 0.0},
}


def digest(tensors: Iterable[Tensor]) -> str:
    parts = [tensor.detach().contiguous().numpy().tobytes() for tensor in tensors]
    return hashlib.sha256(b"".join(parts)).hexdigest()


def figures(folder: Path, **settings: Any) -> dict[str, Any]:
    """The metrics of two optimiser steps, and digests of what went in, of the last gradient and of the weights then."""
    config = train_config(**settings)
    policy = Policy(folder, config)
    shake(policy)
    recorded = [-0.5 - 0.1 * k for k in range(len(sample(4).response_ids))]
    data = batch(
        [
            sample(1),
            sample(2, temperature=0.0),
            sample(3, hint=None),
            sample(4, logprobs=recorded),
            sample(5, reward=0.0),
            replace(sample(6), hint_at=None),
        ]
    )
    signals = compute_signals(policy, data, config, no_tick)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=config.lr)
    everyone = range(len(signals))
    steps = [optimiser_step(policy, optimizer, data, signals, everyone, config, no_tick) for _ in range(2)]
    return {
        "metrics": steps,
        "machine": f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}",
        "old": digest(s.old for s in signals),
        "gradient": digest(p.grad for p in policy.parameters() if p.grad is not None),
        "weights": digest(policy.state().values()),
    }


@pytest.mark.parametrize("case", CASES)
def test_an_update_comes_to_the_figures_written_down(tiny_dir: Path, case: str) -> None:
    golden = json.loads(FILE.read_text(encoding="utf-8"))[case]
    found = figures(tiny_dir, **CASES[case])
    for step, expected in zip(found["metrics"], golden["metrics"], strict=True):
        assert step == pytest.approx(expected, rel=1e-3, abs=1e-6)
    if (found["machine"], found["old"]) == (golden["machine"], golden["old"]):
        assert found == golden


if __name__ == "__main__":
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        model = make_model(Path(place))
        written = {case: figures(model, **settings) for case, settings in CASES.items()}
    FILE.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
