"""Golden numbers for the advantages (docs/training.md, "Signals")."""

from __future__ import annotations

import pytest
import torch

from turnwise.training import advantages


def test_the_score_is_given_to_every_response_token() -> None:
    assert advantages.binary(-1.0, 3).tolist() == [-1.0, -1.0, -1.0]


def test_distillation_is_the_log_ratio_of_teacher_and_old() -> None:
    teacher = torch.tensor([-1.0, -0.25, -3.0])
    old = torch.tensor([-0.5, -1.25, -3.0])
    assert advantages.distillation(teacher, old).tolist() == [-0.5, 1.0, 0.0]


def test_distillation_carries_no_gradient() -> None:
    teacher = torch.tensor([-1.0], requires_grad=True)
    assert not advantages.distillation(teacher, torch.tensor([-2.0])).requires_grad


def test_the_baseline_is_the_mean_over_all_tokens_of_the_batch() -> None:
    first, second = advantages.subtract_mean([torch.tensor([-1.0, -2.0, -3.0]), torch.tensor([2.0])])
    assert first.tolist() == [0.0, -1.0, -2.0]  # the mean is -1
    assert second.tolist() == [3.0]


def test_the_baseline_of_nothing_is_nothing() -> None:
    assert advantages.subtract_mean([]) == []


def test_combined_adds_both_terms_with_their_weights() -> None:
    opd = torch.tensor([0.5, -0.25])
    got = advantages.combine(advantages.binary(-1.0, 2), opd, w_binary=0.5, w_opd=2.0)
    assert got.tolist() == [0.5, -1.0]


@pytest.mark.parametrize("reward", [1.0, 0.0, -1.0])
def test_without_a_hint_the_distillation_term_is_exactly_zero(reward: float) -> None:
    assert advantages.combine(advantages.binary(reward, 2), None, 1.0, 1.0).tolist() == [reward, reward]
