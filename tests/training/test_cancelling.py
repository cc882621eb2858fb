"""Whether a later wish takes an earlier one back: the labelled pairs, the line through them, and the real models."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.tiny import no_tick
from turnwise.config import TrainConfig
from turnwise.tokens.rendering import load_renderer
from turnwise.training.lessons.cancelling import ENDS, MORE, RIDGE, _least, _sides, cancels, labelled
from turnwise.training.policy import Policy

UNSEEN = Path(__file__).parent / "endings-unseen.tsv"
"""80 pairs in seven languages by another writer, of which none is in the labelled ones."""


def unseen() -> tuple[list[tuple[str, str]], list[bool]]:
    rows = [line.split("\t") for line in UNSEEN.read_text(encoding="utf-8").splitlines()[1:]]
    return [(row[2], row[4]) for row in rows], [row[0] == "ends" for row in rows]


def test_the_labelled_pairs_are_of_both_kinds_and_none_is_one_of_those_kept_aside() -> None:
    pairs, labels = labelled()
    assert len(pairs) == len(set(pairs)) and min(Counter(labels).values()) >= 60 and set(labels) == {1.0, -1.0}
    kinds: dict[str, set[float]] = {}
    for (earlier, later), label in zip(pairs, labels, strict=True):
        assert earlier.strip() == earlier != "" and later.strip() == later != "" and later not in (ENDS, MORE)
        kinds.setdefault(earlier, set()).add(label)
    assert all(len(found) == 2 for found in kinds.values()), "a wish of one kind tells what it is about, not its end"
    assert set(pairs).isdisjoint(unseen()[0])


def test_the_line_is_that_of_ridge_regression() -> None:
    """In its primal form: w = (XᵀX + λDH·I)⁻¹ Xᵀy of the scaled states, which is the same line."""
    made = torch.Generator().manual_seed(1)
    sizes = torch.tensor([[3.0], [40.0]])  # of the two depths
    states, said = (torch.randn(n, 2, 5, generator=made).double() * sizes for n in (12, 4))
    labels = torch.tensor([1.0, -1.0] * 6)
    scale = states.std(0).mean(-1, keepdim=True)
    x, others = (states / scale).reshape(12, 10), (said / scale).reshape(4, 10)
    weights = torch.linalg.solve(x.T @ x + RIDGE * 10 * torch.eye(10, dtype=torch.double), x.T @ labels.double())
    assert torch.allclose(_sides(states, labels, said), others @ weights, atol=1e-9)
    resized = torch.tensor([[7.0], [0.1]])
    assert torch.allclose(_sides(resized * states, labels, resized * said), others @ weights, atol=1e-9)


def test_few_additions_are_taken_for_endings_by_a_line_of_other_wishes() -> None:
    """Of twenty additions one lies far among the endings: so far may be mistaken, and nothing nearer is an ending."""
    states = torch.tensor([[[1.0, 0.0]]] * 20 + [[[-1.0, 0.0]]] * 19 + [[[0.6, 0.0]]])
    states += 0.01 * torch.randn(40, 1, 2, generator=torch.Generator().manual_seed(2))
    labels, wishes = torch.tensor([1.0] * 20 + [-1.0] * 20), [f"wish {n % 20}" for n in range(40)]
    least, sides = _least(states, labels, wishes), _sides(states, labels, states)
    assert (sides[20:] > least).tolist() == [False] * 19 + [True] and (sides[:20] > least).all()
    assert least > sides[20:39].max(), "what is an addition for certain is far from the limit"


def test_a_pair_is_not_measured_by_a_line_that_knows_its_wish() -> None:
    """Each wish has a direction of its own here: of the others a line learns nothing about it."""
    labels = torch.tensor([1.0, -1.0] * 10)
    states = (torch.eye(20) * 5).unsqueeze(1)
    assert (_sides(states, labels, states) * labels > 0.1).all(), "a line of all pairs knows each"
    assert abs(_least(states, labels, [f"wish {n}" for n in range(20)])) < 1e-9


def test_nothing_is_asked_where_there_is_no_pair(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "states_within", None)
    assert cancels(policy, None, [], no_tick) == []  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_real_model_tells_endings_that_nobody_fitted_it_to(model_dir: Path) -> None:
    """Of 40 and 40 the embedded model finds 26 endings and takes 10 others for one; the 0.5B model 34 and 5."""
    pairs, ends = unseen()
    ticks: list[tuple[str, int, int]] = []

    def told(*said: Any) -> None:
        ticks.append(said)

    found = cancels(Policy(model_dir, TrainConfig(device="cpu")), load_renderer(model_dir), pairs, told)
    assert sum(one for one, end in zip(found, ends, strict=True) if end) >= 20
    assert sum(one for one, end in zip(found, ends, strict=True) if not end) <= 12
    assert len(ticks) > len(labelled()[0]) / 32 + len(pairs) / 32 and {phase for phase, _, _ in ticks} == {"comparing"}
