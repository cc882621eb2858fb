"""Whether what a person said is a wish about other answers, too: the labelled rows, and the real model."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.training.tiny import no_tick
from turnwise.config import TrainConfig
from turnwise.training.kinds.lasting import labelled, lasts
from turnwise.training.policy import Policy

UNSEEN = Path(__file__).parent / "said-unseen.tsv"
"""148 things that people say, in eleven languages, by another writer than the labelled ones."""


def unseen() -> list[tuple[str, str]]:
    rows = [line.split("\t") for line in UNSEEN.read_text(encoding="utf-8").splitlines()[1:]]
    return [(kind, said) for kind, said in rows]


def test_the_labelled_rows_are_of_both_kinds_and_none_is_one_of_those_kept_aside() -> None:
    said, labels = labelled()
    assert len({text.casefold() for text in said}) == len(said) and min(Counter(labels).values()) >= 140
    assert all(text.strip() == text != "" for text in said) and set(labels) == {1.0, -1.0}
    assert {text.casefold() for text in said}.isdisjoint(text.casefold() for _, text in unseen())
    kinds = dict(zip(said, labels, strict=True))
    assert kinds["24h clock pls"] == -1.0 and kinds["add eggs to the shopping list"] == 1.0


def test_nothing_is_read_where_nothing_was_said(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "states_within", None)
    assert lasts(policy, [], no_tick) == []


@pytest.mark.slow
def test_a_real_model_keeps_wishes_and_drops_what_is_about_one_answer(model_dir: Path) -> None:
    """Of 70 wishes both models keep 69, of 78 others the embedded one drops 24 and the 0.5B model 48."""
    rows, policy = unseen(), Policy(model_dir, TrainConfig(device="cpu"))
    kept = lasts(policy, [said for _, said in rows], no_tick)
    counts = Counter((kind == "lasting", one) for (kind, _), one in zip(rows, kept, strict=True))
    assert counts[True, True] >= 66 and counts[False, False] >= 20
    for shown in (["be brief, please"], ["no, not like this", "be brief, please"]):
        assert lasts(policy, shown, no_tick)[-1], "whatever stands beside it"
