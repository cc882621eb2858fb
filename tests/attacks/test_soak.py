"""A short soak of the whole program, on a tiny model so that much happens: it must end without a fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.models import make_tiny_model
from turnwise.bench.soak.run import SoakOptions, bench_soak


@pytest.mark.attacks
@pytest.mark.timeout(1500)
def test_a_short_soak_finds_no_fault(tmp_path: Path, model_dir: Path) -> None:
    model = make_tiny_model(tmp_path / "model", model_dir)
    report, faults = bench_soak(SoakOptions(model=str(model), out=tmp_path / "out", quick=True, seed=8), print)
    for figure in report.figures:
        print(figure.what, figure.value, figure.beside)
    assert faults == []
    assert (tmp_path / "out" / "memory.png").stat().st_size > 10_000
    assert not (tmp_path / "out" / "disk").exists(), "the disk is unmounted and gone"
