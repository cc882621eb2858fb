"""What `turnwise versions list` says of the gate."""

from __future__ import annotations

from typing import Any

import pytest

from turnwise.cli.versions.commands import _passed


@pytest.mark.parametrize(
    ("gate", "said"),
    [
        ({"accepted": True, "alpha": 1.0, "unmeasured": []}, "passed"),
        ({"accepted": True, "alpha": 0.25, "unmeasured": []}, "passed with 0.25 of the step"),
        ({"accepted": True, "alpha": 1.0, "unmeasured": ["nll_rise"]}, "passed; not measured: nll_rise"),
        ({"accepted": True, "alpha": 1.0, "skipped": "gate.enabled is false"}, "not asked"),
        ({"accepted": True}, "passed"),  # of a version from before there were parts
    ],
)
def test_a_version_says_how_it_passed_the_gate(gate: dict[str, Any], said: str) -> None:
    assert _passed(gate) == said
