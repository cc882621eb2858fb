"""Two processes on the CPU compute what one does: scores, gradients, optimiser steps."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.fsdp2.steps import CASES, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
LIMIT_S = 240


def torchrun(*arguments: str, ranks: int = 2) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*command, *arguments], capture_output=True, text=True, timeout=LIMIT_S, check=False, env=environment
    )


def close(one: Any, other: Any, what: str) -> None:
    """No number differs by more than 1e-5 of the largest one."""
    if isinstance(one, torch.Tensor):
        scale = max(float(one.abs().max()), 1e-8)
        assert one.shape == other.shape, what
        assert float((one - other).abs().max()) < 1e-5 * scale, what
    elif isinstance(one, dict):
        assert one.keys() == other.keys(), what
        largest = max((float(t.abs().max()) for t in one.values() if isinstance(t, torch.Tensor)), default=0.0)
        for name, value in one.items():
            if isinstance(value, torch.Tensor):
                assert float((value - other[name]).abs().max()) < 1e-5 * max(largest, 1e-8), f"{what} {name}"
            else:
                close(value, other[name], f"{what} {name}")
    elif isinstance(one, list | tuple):
        for a, b in zip(one, other, strict=True):
            close(a, b, what)
    else:
        assert other == pytest.approx(one, rel=1e-4, abs=1e-6), what


@pytest.mark.parametrize("kind", ["lora", "full"])
def test_gradients_and_steps_are_those_of_one_process(tmp_path: Path, tiny_dir: Path, kind: str) -> None:
    out = tmp_path / "found.pt"
    done = torchrun("-m", "tests.training.fsdp2.steps", str(tiny_dir), str(out), kind)
    assert done.returncode == 0, done.stderr[-3000:]
    alone, together = run(tiny_dir, kind, None), torch.load(out, weights_only=False)
    assert alone.keys() == together.keys()
    for what in alone:
        close(alone[what], together[what], what)
    for case in CASES:
        assert any(float(g.abs().max()) > 0 for g in alone[f"{case}/0/grads"].values())  # type: ignore[union-attr]
