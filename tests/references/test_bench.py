"""`turnwise bench train --trl` runs to its end: both trainers take the same batch, on a tiny model.

`make test-references` runs this in an environment of its own that has TRL; elsewhere it is skipped.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

trl = pytest.importorskip("trl", reason="see `make test-references`")
pytest.importorskip("datasets")

from tests.references.test_sft import make_model  # noqa: E402
from turnwise.bench.beside_trl import measure  # noqa: E402
from turnwise.config import Config  # noqa: E402


def test_both_trainers_take_the_same_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "SESSIONS", 2)
    monkeypatch.setattr(measure, "TURNS", 2)
    monkeypatch.setattr(measure, "CONVERSATIONS", 4)
    monkeypatch.setattr(measure, "TOGETHER", 2)
    model = make_model(tmp_path / "model")
    config = Config.model_validate({"model": {"path": str(model)}})
    report = measure.bench_beside_trl(config, Path(sys.executable), trl.__version__, repeats=1)
    assert [figure.what for figure in report.figures] == ["update: 2 sessions of 2 turns", "fine-tuning", "fine-tuning"]
    assert trl.__version__ in report.notes[0]
