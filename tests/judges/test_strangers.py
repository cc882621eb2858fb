"""How well the heads that ship judge people whom no row is by: a head that reads strangers worse is seen here.

`unseen-strangers-2.jsonl` was written by somebody who had seen no row, and nothing is ever tuned on it: that a floor
below is missed is a reason to look for what made the judge worse, and none to add rows that are like its cases.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from turnwise.config import Config
from turnwise.judges.cases import read_cases
from turnwise.judges.evaluate import judge_by_signals, report

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

STRANGERS = Path(__file__).with_name("unseen-strangers-2.jsonl")
SURE = 0.9


def measured(model: Path) -> dict[str, float]:
    """Shares: right of the surest 75 %, how much it is sure of and right there, precision and recall of hints."""
    cases = read_cases(STRANGERS)
    found, who = judge_by_signals(cases, Config.model_validate({"model": {"path": str(model)}}))
    assert who == f"signals, hidden states of {model.name}"
    figures = report(found)
    sure = [case for case in found if case.confidence >= SURE]
    shares = {
        "right of 75 %": figures["accuracy_at"]["75%"],
        "sure": len(sure) / len(cases),
        "right where it is sure": sum(case.best == case.case.label for case in sure) / len(sure),
        "hints, precision": figures["hints"]["precision"],
        "hints, recall": figures["hints"]["recall"],
    }
    print(model.name, {name: f"{100 * share:.1f} %" for name, share in shares.items()})
    return shares


def below(found: dict[str, float], floors: dict[str, float]) -> dict[str, float]:
    return {name: found[name] for name, floor in floors.items() if found[name] < floor}


# Seen: 85.8 %, sure of 42.6 % and right in 91.0 % of these; hints 84.9 and 85.9 %.
FLOORS = {
    "right of 75 %": 0.82,
    "sure": 0.40,
    "right where it is sure": 0.89,
    "hints, precision": 0.82,
    "hints, recall": 0.83,
}
# Seen: 84.1, 48.5, 95.6, 85.2 and 88.2 %.
LARGER = {
    "right of 75 %": 0.81,
    "sure": 0.45,
    "right where it is sure": 0.92,
    "hints, precision": 0.80,
    "hints, recall": 0.85,
}


def test_the_small_model_reads_strangers_no_worse_than_it_did(model_dir: Path) -> None:
    assert below(measured(model_dir), FLOORS) == {}


@pytest.mark.long
def test_the_larger_model_reads_strangers_no_worse_than_it_did(tools_model_dir: Path) -> None:
    assert below(measured(tools_model_dir), LARGER) == {}
