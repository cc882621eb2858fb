"""A person who contradicts themselves: what they said last stands, also where the model's states do not see it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.skills.test_opposed import OPPOSED
from turnwise.config import TrainConfig
from turnwise.training.lessons.wishes import standing
from turnwise.training.policy import Policy


def apart(texts: Sequence[str]) -> Tensor:
    """States of a model to which nothing is like anything else."""
    return torch.eye(len(texts))


def all_followed(pairs: Sequence[tuple[int, str]]) -> list[bool | None]:
    return [True] * len(pairs)


def none_followed(pairs: Sequence[tuple[int, str]]) -> list[bool | None]:
    return [False] * len(pairs)


def all_end(pairs: Sequence[tuple[str, str]]) -> list[bool]:
    return [True] * len(pairs)


def none_end(pairs: Sequence[tuple[str, str]]) -> list[bool]:
    return [False] * len(pairs)


def test_of_two_that_rule_each_other_out_the_later_one_stands_beside_the_others() -> None:
    hints = ["be brief", "use metric units", "Longer answers, please.", "be brief", "too short, more detail please"]
    assert standing(hints, apart).wishes == ["use metric units", "too short, more detail please"]


def test_two_that_name_the_same_things_are_about_them_whether_they_are_wanted_or_not() -> None:
    hints = ["Use bullet points, please.", "use metric units", "No bullet points, please."]
    assert standing(hints, apart).wishes == ["use metric units", "No bullet points, please."]
    assert standing(["use bullet points", "points of the compass first"], apart).wishes == [
        "use bullet points",
        "points of the compass first",
    ]


def test_the_opposite_of_a_wish_that_is_followed_is_a_wish_and_not_only_the_end_of_one() -> None:
    found = standing(["be brief", "Longer answers, please."], apart, all_followed, all_end)
    assert (found.wishes, found.taken_back) == (["Longer answers, please."], [])


def test_the_opposite_of_a_wish_that_is_not_followed_is_none_of_its_wordings() -> None:
    found = standing(["in French, please", "in Spanish, please"], apart, none_followed, none_end)
    assert (found.wishes, found.before) == (["in Spanish, please"], [[]])


@pytest.mark.slow
def test_with_the_real_models_states_the_last_of_such_wishes_stands(model_dir: Path) -> None:
    """By its states alone both stood of 8 of these 13 pairs, as with the 0.5B model."""
    policy = Policy(model_dir, TrainConfig(device="cpu"))
    assert [standing(pair, policy.states_of).wishes for pair in OPPOSED] == [[later] for _, later in OPPOSED]
