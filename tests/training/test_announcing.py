"""Whether a label announces something beside the answer: the labelled wishes, and the real models."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.training.tiny import no_tick
from turnwise.config import TrainConfig
from turnwise.tokens.rendering import load_renderer
from turnwise.training.kinds.announcing import announces, labelled
from turnwise.training.policy import Policy

UNSEEN = Path(__file__).parent / "labels-unseen.tsv"
"""20 wishes for more behind a label and 20 for a label before the answer, by another writer than the labelled ones, and
24 for none in seven languages, by the writer of the labelled ones of this kind."""


def unseen() -> list[tuple[str, str, str]]:
    kind_label_wish = [line.split("\t") for line in UNSEEN.read_text(encoding="utf-8").splitlines()[1:]]
    return [(kind, label, wish) for kind, label, wish in kind_label_wish]


def test_the_labelled_wishes_are_of_each_kind_and_none_is_one_of_those_kept_aside() -> None:
    said, kinds = labelled()
    assert len(set(said)) == len(said) and min(Counter(kinds).values()) >= 120 and set(kinds) == {1.0, -1.0}
    assert all(label.endswith(":") and f'"{label}"' in wish and wish.strip() == wish for label, wish in said)
    of: dict[str, set[float]] = {}
    for (label, _), kind in zip(said, kinds, strict=True):
        of.setdefault(label, set()).add(kind)
    assert sum(len(found) == 2 for found in of.values()) >= 100, "most labels by themselves tell nothing"
    assert {wish for _, wish in said}.isdisjoint(wish for _, _, wish in unseen())
    by_wish = {wish: kind for (_, wish), kind in zip(said, kinds, strict=True)}
    assert by_wish['no "Summary:" please'] == -1.0 and by_wish['prefix answers w/ "Result:"'] == -1.0
    assert by_wish['close each answer with "Bot:" and a silly robot joke'] == 1.0


def test_nothing_is_read_where_there_is_no_label(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "states_within", None)
    assert announces(policy, None, [], no_tick) == []  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_real_model_tells_labels_that_announce_more(model_dir: Path) -> None:
    """Of 20 the embedded model finds 14 and takes none of 44 others for one; the 0.5B model 20 and 2."""
    rows, policy = unseen(), Policy(model_dir, TrainConfig(device="cpu"))
    found = announces(policy, load_renderer(model_dir), [(label, wish) for _, label, wish in rows], no_tick)
    counts = Counter((kind, by > 0) for (kind, _, _), by in zip(rows, found, strict=True))
    assert counts["more", True] >= 12
    assert counts["head", True] <= 3 and counts["none", True] <= 3
