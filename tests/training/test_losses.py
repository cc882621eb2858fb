"""Golden numbers for the losses, worked by hand (docs/training.md, "Loss")."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from turnwise.training import losses

LN2, LN3 = math.log(2), math.log(3)


def logs(*probabilities: float) -> Tensor:
    return torch.tensor([probabilities], dtype=torch.float64).log()


# -- importance weight ----------------------------------------------------------------------------------------------


def test_importance_weight_is_the_probability_ratio_cut_at_the_cap() -> None:
    old = torch.tensor([-1.0, -1.0, -1.0])
    sampled = torch.tensor([-1.0, -1.0 + LN2, -1.0 - LN3])
    assert losses.importance_weight(old, sampled, cap=2.0).tolist() == pytest.approx([1.0, 0.5, 2.0])


def test_a_missing_record_switches_the_weight_off_instead_of_meaning_probability_one() -> None:
    assert losses.importance_weight(torch.tensor([-7.0, -0.1]), None, cap=2.0).tolist() == [1.0, 1.0]


def test_a_cap_of_zero_switches_the_weight_off() -> None:
    assert losses.importance_weight(torch.tensor([-7.0]), torch.tensor([-1.0]), cap=0.0).tolist() == [1.0]


# -- clipped surrogate ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "cut"),
    [
        (1.0, 2.0, -2.0, False),
        (1.5, 1.0, -1.28, True),  # a good token is pushed up to 1 + 0.28
        (1.25, 1.0, -1.25, False),  # above 1.2, but the upper clip is wider
        (0.5, 1.0, -0.5, False),  # a good token that fell behind is pulled back
        (0.5, -1.0, 0.8, True),  # a bad token is pushed down to 1 - 0.2
        (1.5, -1.0, 1.5, False),  # a bad token that rose is pulled back
        (3.0, 0.0, 0.0, False),
    ],
)
def test_clipped_surrogate(ratio: float, advantage: float, loss: float, cut: bool) -> None:
    got, clipped = losses.clipped_surrogate(
        torch.tensor([math.log(ratio)]), torch.zeros(1), torch.tensor([advantage]), torch.ones(1), 0.2, 0.28
    )
    assert got.item() == pytest.approx(loss)
    assert clipped.item() is cut


def test_the_importance_weight_scales_the_surrogate() -> None:
    got, _ = losses.clipped_surrogate(
        torch.zeros(1), torch.zeros(1), torch.tensor([-1.0]), torch.tensor([0.25]), 0.2, 0.28
    )
    assert got.item() == 0.25


def test_a_clipped_token_has_no_gradient() -> None:
    logp = torch.tensor([math.log(1.5)], requires_grad=True)
    got, _ = losses.clipped_surrogate(logp, torch.zeros(1), torch.ones(1), torch.ones(1), 0.2, 0.28)
    got.sum().backward()
    assert logp.grad is not None
    assert logp.grad.item() == 0.0


# -- KL terms -------------------------------------------------------------------------------------------------------


def test_k3() -> None:
    got = losses.k3(torch.tensor([-1.0, -1.0, -1.0]), torch.tensor([-1.0, -1.0 + LN2, -1.0 - LN2]))
    assert got.tolist() == pytest.approx([0.0, 1 - LN2, LN2 - 0.5])


def test_a_ratio_is_cut_at_twenty_nats_both_ways() -> None:
    far = losses.ratio(torch.tensor([-1000.0, 0.0]).double(), torch.tensor([0.0, -1000.0]).double())
    assert far.log().tolist() == pytest.approx([-20.0, 20.0])


def test_k3_is_cut_at_a_log_ratio_of_twenty_both_ways() -> None:
    far = losses.k3(torch.tensor([-1000.0, 0.0]).double(), torch.tensor([0.0, -1000.0]).double())
    assert far.tolist() == pytest.approx([math.exp(20) - 21, math.exp(-20) + 19])


@given(st.floats(-20, 0), st.floats(-20, 0))
def test_k3_is_never_negative(logp: float, ref: float) -> None:
    assert losses.k3(torch.tensor([logp], dtype=torch.float64), torch.tensor([ref], dtype=torch.float64)).item() >= 0


def test_reverse_kl_is_of_the_student_from_the_teacher() -> None:
    got = losses.divergence(logs(0.5, 0.5), logs(0.25, 0.75), "reverse")
    assert got.item() == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(2 / 3))


def test_forward_kl_is_of_the_teacher_from_the_student() -> None:
    got = losses.divergence(logs(0.5, 0.5), logs(0.25, 0.75), "forward")
    assert got.item() == pytest.approx(0.25 * math.log(0.5) + 0.75 * math.log(1.5))


@pytest.mark.parametrize("direction", ["reverse", "forward"])
def test_equal_distributions_have_no_divergence_and_no_gradient(direction: losses.Divergence) -> None:
    logits = torch.randn(4, 11, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    student = logits.log_softmax(-1)
    got = losses.divergence(student, student.detach(), direction)
    got.sum().backward()
    assert got.abs().max().item() < 1e-12
    assert logits.grad is not None
    assert logits.grad.abs().max().item() < 1e-12


@pytest.mark.parametrize(("direction", "second"), [("reverse", 0.5 * math.log(4 / 3)), ("forward", 0.0)])
def test_each_position_has_a_divergence_of_its_own(direction: losses.Divergence, second: float) -> None:
    student = torch.cat([logs(0.5, 0.5), logs(0.5, 0.5), logs(0.25, 0.75)])
    teacher = torch.cat([logs(0.5, 0.5), logs(0.25, 0.75), logs(0.25, 0.75)])
    second = second or 0.25 * -LN2 + 0.75 * math.log(1.5)
    assert losses.divergence(student, teacher, direction).tolist() == pytest.approx([0.0, second, 0.0])


ZERO = float("-inf")


def test_a_word_that_both_give_no_probability_adds_nothing_either_way() -> None:
    """0.5 log(0.5 / 0.25) + 0.5 log(0.5 / 0.75), as if the third word were not there."""
    student, teacher = logs(0.5, 0.5, 0.0), logs(0.25, 0.75, 0.0)
    assert student[0, 2] == ZERO
    assert losses.divergence(student, teacher, "reverse").item() == pytest.approx(math.log(4 / 3) / 2)
    assert losses.divergence(student, teacher, "forward").item() == pytest.approx(0.25 * -LN2 + 0.75 * math.log(1.5))


@pytest.mark.parametrize(("direction", "found"), [("reverse", LN2), ("forward", math.inf)])
def test_a_word_that_the_student_rules_out_matters_where_it_is_summed_over(
    direction: losses.Divergence, found: float
) -> None:
    assert losses.divergence(logs(1.0, 0.0), logs(0.5, 0.5), direction).item() == pytest.approx(found)
    other: losses.Divergence = "forward" if direction == "reverse" else "reverse"
    assert losses.divergence(logs(0.5, 0.5), logs(1.0, 0.0), other).item() == pytest.approx(found)


@pytest.mark.parametrize("direction", ["reverse", "forward"])
def test_a_masked_word_leaves_the_others_gradient_as_it_would_be_without_it(direction: losses.Divergence) -> None:
    def gradient(extra: list[float]) -> list[float]:
        logits = torch.tensor([[0.3, -1.0, 0.8, *extra]], dtype=torch.float64, requires_grad=True)
        teacher = torch.tensor([[0.2, 0.5, 0.3, *([0.0] * len(extra))]], dtype=torch.float64).log()
        losses.divergence(logits.log_softmax(-1), teacher, direction).sum().backward()
        assert logits.grad is not None
        return logits.grad[0].tolist()

    assert gradient([ZERO, ZERO]) == pytest.approx([*gradient([]), 0.0, 0.0])


def test_the_teacher_gets_no_gradient() -> None:
    teacher = logs(0.25, 0.75).requires_grad_()
    student = logs(0.5, 0.5).requires_grad_()
    losses.divergence(student, teacher, "reverse").sum().backward()
    assert teacher.grad is None


def test_reverse_kl_gradient_is_the_expectation_of_the_sampled_one() -> None:
    """`exact` is what `sampled` estimates: Σ_j π(j) · ∇log π(j) · (log π(j) − log π_T(j))."""
    logits = torch.tensor([[0.3, -1.0, 0.8]], dtype=torch.float64, requires_grad=True)
    student, teacher = logits.log_softmax(-1), logs(0.2, 0.5, 0.3)
    losses.divergence(student, teacher, "reverse").sum().backward()
    p = student.detach().exp()
    score = torch.eye(3, dtype=torch.float64) - p  # row j is ∇ log π(j) with respect to the logits
    expected = (p * (student.detach() - teacher)) @ score
    assert logits.grad is not None
    assert torch.allclose(logits.grad, expected)


def test_topk_keeps_the_teachers_tokens_and_folds_the_rest_into_one_bin() -> None:
    teacher = logs(0.1, 0.4, 0.2, 0.3)
    ids = losses.top_tokens(teacher, 2)
    assert ids.tolist() == [[1, 3]]
    assert losses.fold_tail(teacher, ids).exp().tolist()[0] == pytest.approx([0.4, 0.3, 0.3])
    assert losses.fold_tail(logs(0.7, 0.1, 0.15, 0.05), ids).exp().tolist()[0] == pytest.approx([0.1, 0.05, 0.85])


def test_topk_golden_value() -> None:
    teacher, student = logs(0.1, 0.4, 0.2, 0.3), logs(0.7, 0.1, 0.15, 0.05)
    ids = losses.top_tokens(teacher, 2)
    got = losses.divergence(losses.fold_tail(student, ids), losses.fold_tail(teacher, ids), "reverse")
    expected = 0.1 * math.log(0.1 / 0.4) + 0.05 * math.log(0.05 / 0.3) + 0.85 * math.log(0.85 / 0.3)
    assert got.item() == pytest.approx(expected)


@pytest.mark.parametrize("k", [3, 4, 50])
def test_topk_with_all_tokens_kept_is_exact(k: int) -> None:
    teacher, student = logs(0.1, 0.4, 0.2, 0.3), logs(0.7, 0.1, 0.15, 0.05)
    ids = losses.top_tokens(teacher, k)
    got = losses.divergence(losses.fold_tail(student, ids), losses.fold_tail(teacher, ids), "reverse")
    assert got.item() == pytest.approx(losses.divergence(student, teacher, "reverse").item())


def test_a_vanishing_tail_gives_a_finite_gradient() -> None:
    logits = torch.tensor([[200.0, 0.0, 0.0]], requires_grad=True)
    student = logits.log_softmax(-1)
    teacher = torch.tensor([[90.0, 0.0, 0.0]]).log_softmax(-1)
    ids = losses.top_tokens(teacher, 1)
    losses.divergence(losses.fold_tail(student, ids), losses.fold_tail(teacher, ids), "reverse").sum().backward()
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()


def test_a_tail_of_no_probability_is_a_bin_of_none_and_has_a_finite_gradient() -> None:
    logits = torch.tensor([[1.0, 2.0, ZERO, ZERO]], dtype=torch.float64, requires_grad=True)
    student, teacher = logits.log_softmax(-1), logs(0.5, 0.5, 0.0, 0.0)
    ids = losses.top_tokens(teacher, 2)
    folded = losses.fold_tail(student, ids)
    assert folded[0, 2] == ZERO
    got = losses.divergence(folded, losses.fold_tail(teacher, ids), "reverse")
    got.sum().backward()
    assert got.item() == pytest.approx(losses.divergence(student, teacher, "reverse").item())
    assert logits.grad is not None and logits.grad.isfinite().all()


def test_each_position_has_a_tail_of_its_own() -> None:
    table = torch.cat([logs(0.1, 0.4, 0.2, 0.3), logs(0.5, 0.5, 0.0, 0.0), logs(0.7, 0.1, 0.15, 0.05)])
    ids = losses.top_tokens(table, 2)
    assert ids.tolist()[0] == [1, 3] and sorted(ids.tolist()[1]) == [0, 1] and ids.tolist()[2] == [0, 2]
    table.requires_grad_()
    tails = losses.fold_tail(table, ids)[:, 2].exp()
    assert tails.tolist() == pytest.approx([0.3, 0.0, 0.15])
    tails.sum().backward()
    assert table.grad is not None and table.grad.isfinite().all()


def test_a_long_tail_is_summed_to_the_last_word() -> None:
    """Half of the mass on one word, the rest on 99,999 of one size; the teacher has it the other way about."""
    n = 100_000
    student = torch.full((1, n), 0.5 / (n - 1), dtype=torch.float64)
    teacher = torch.full((1, n), 0.9 / (n - 1), dtype=torch.float64)
    student[0, 0], teacher[0, 0] = 0.5, 0.1
    exact = 0.5 * math.log(5) + 0.5 * math.log(5 / 9)
    assert losses.divergence(student.log(), teacher.log(), "reverse").item() == pytest.approx(exact, abs=1e-9)
    ids = torch.tensor([[0, 1, 2]])
    folded = losses.divergence(losses.fold_tail(student.log(), ids), losses.fold_tail(teacher.log(), ids), "reverse")
    assert folded.item() == pytest.approx(exact, abs=1e-9), "words of one ratio may share a bin"


# -- aggregation ----------------------------------------------------------------------------------------------------


def test_turn_mean_counts_every_turn_alike() -> None:
    assert losses.turn_weights([2, 8], "turn-mean") == pytest.approx([1 / 4, 1 / 16])


def test_token_mean_counts_every_token_alike() -> None:
    assert losses.turn_weights([2, 8], "token-mean") == pytest.approx([1 / 10, 1 / 10])


@pytest.mark.parametrize("aggregation", ["turn-mean", "token-mean"])
def test_a_masked_turn_is_in_no_denominator(aggregation: losses.Aggregation) -> None:
    masked = losses.turn_weights([2, 0, 8], aggregation)
    assert [masked[0], masked[2]] == losses.turn_weights([2, 8], aggregation)
    assert masked[1] == 0.0


def test_no_turn_at_all() -> None:
    assert losses.turn_weights([0, 0], "turn-mean") == [0.0, 0.0]


@pytest.mark.parametrize("gap", [-1000.0, 1000.0])
@pytest.mark.parametrize("advantage", [-1.0, 1.0])
def test_an_extreme_log_ratio_has_a_finite_loss_and_gradient(gap: float, advantage: float) -> None:
    logp = torch.tensor([-3.0], requires_grad=True)
    other = logp.detach() + gap
    weight = losses.importance_weight(logp.detach(), other, 2.0)
    surrogate, _ = losses.clipped_surrogate(logp, other, torch.tensor([advantage]), weight, 0.2, 0.28)
    loss = (surrogate + losses.k3(logp, other)).sum()
    loss.backward()
    assert loss.isfinite().all()
    assert logp.grad is not None and logp.grad.isfinite().all()
