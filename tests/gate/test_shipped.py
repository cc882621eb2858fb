"""Honest updates at shipped settings, lessons and all, must pass the gate: real updates of both embedded models.

Whole: `make test-gate`, in which each update of the larger model takes minutes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gate.build import told
from tests.gate.cases import HONEST
from tests.gate.shipped import Shipped

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.gate, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module", params=["smollm2", "qwen"])
def shipped(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shipped]:
    model: Path = request.getfixturevalue("model_dir" if request.param == "smollm2" else "tools_model_dir")
    yield Shipped(model, tmp_path_factory.mktemp("shipped"))


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_update_passes(shipped: Shipped, name: str) -> None:
    found = shipped.update(name)
    learned = {key: round(value, 2) for key, value in found.metrics.items() if key.startswith("lesson")}
    print(told(name, found.gate), learned, found.gate.get("wishes"), f"{found.metrics['seconds']:.0f} s", flush=True)
    assert found.gate["accepted"] and found.gate["alpha"] > 0
