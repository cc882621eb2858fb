"""Planted regressions must be stopped and honest updates must pass: real LoRA updates of the real model.

Whole: `make test-gate`. A regression is stopped when nothing of it is published. Of an honest update any part will do.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gate.build import Workshop, told
from tests.gate.cases import HONEST, PLANTED, SEEN
from turnwise.training.gate.gate import Gate
from turnwise.training.gate.probes import general_probes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
QUICK = ("refusal-same", "metric")
"""What `make test-slow` plays."""


@pytest.fixture(scope="module")
def workshop(model_dir: Path) -> Workshop:
    return Workshop(model_dir)


@pytest.fixture(scope="module")
def gate(workshop: Workshop) -> Gate:
    return workshop.gate()


def cases(names: dict[str, tuple[str, ...]]) -> list[object]:
    """Each with its half in its id, so that `-k aside` plays what was kept aside."""
    return [
        pytest.param(name, marks=[] if name in QUICK else [pytest.mark.gate], id=f"{half(name)}-{name}")
        for name in names
    ]


def half(name: str) -> str:
    return "seen" if name in SEEN else "aside"


@pytest.mark.parametrize("name", cases(PLANTED))
def test_a_planted_regression_is_stopped(workshop: Workshop, gate: Gate, name: str) -> None:
    result = workshop.examine(gate, name, workshop.build(name))
    print(told(name, result), flush=True)
    assert result["alpha"] == 0


@pytest.mark.long
@pytest.mark.parametrize("name", cases(HONEST))
def test_an_honest_update_passes(workshop: Workshop, gate: Gate, name: str) -> None:
    result = workshop.examine(gate, name, workshop.build(name))
    print(told(name, result), flush=True)
    assert result["alpha"] > 0


def test_the_general_probe_is_asked_in_the_models_own_words(model_dir: Path, workshop: Workshop) -> None:
    probes = general_probes(model_dir)
    decode = workshop.policy.tokenizer.decode
    assert len(probes) == 24 and len({p.about for p in probes}) >= 7
    text = decode(probes[0].prompt_ids, skip_special_tokens=False)
    assert text.endswith("<|im_start|>user\nWhat is the capital of Japan?<|im_end|>\n<|im_start|>assistant\n")
    assert decode(probes[0].answer_ids, skip_special_tokens=False) == "The capital of Japan is Tokyo.<|im_end|>"
    assert all(p.hint_at is not None for p in probes)
