"""What a server is told of a step, by value, and that its loss then has the gradient of ours."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from turnwise.training import losses
from turnwise.training.hosted.folding import Targets, folded_advantage, undone

CLIP = (0.2, 0.28)


def test_all_terms_of_a_token_are_one_number() -> None:
    found = folded_advantage(
        advantage=torch.tensor([1.0, -0.5]),
        weight=torch.tensor([2.0, 1.0]),
        old=torch.tensor([-1.0, -2.0]),
        ref=torch.tensor([-1.5, -1.0]),
        c_pg=0.25,
        c_kl=0.5,
        beta_kl=0.1,
    )
    assert found.tolist() == pytest.approx([0.45, -0.075])


def test_a_server_that_takes_means_is_told_what_it_divides_by() -> None:
    found = undone([torch.tensor([1.0, 2.0]), torch.tensor([3.0])], [10, 4], "mean")
    assert [a.tolist() for a in found] == [[20.0, 40.0], [24.0]]
    assert [a.tolist() for a in undone([torch.tensor([1.0])], [10], "sum")] == [[1.0]]


def test_targets_stand_beside_the_ids_before_them() -> None:
    text = Targets.of([1, 2, 3], [4, 5])
    assert (text.inputs, text.targets, text.length) == ([1, 2, 3, 4], [2, 3, 4, 5], 2)
    assert text.spread(torch.tensor([0.5, 0.25])) == [0.0, 0.0, 0.5, 0.25]


def test_numbers_of_a_response_are_the_last_ones_whether_the_first_token_has_one_or_not() -> None:
    text = Targets.of([1, 2, 3], [4, 5])
    assert text.of_response([None, -1.0, -2.0, -3.0, -4.0]).tolist() == [-3.0, -4.0]
    assert text.of_response([-1.0, -2.0, -3.0, -4.0]).tolist() == [-3.0, -4.0]
    with pytest.raises(ValueError, match="1 numbers for 2 tokens"):
        text.of_response([-1.0])


def test_a_missing_number_is_none_that_can_be_trained_on() -> None:
    assert Targets.of([1], [2, 3]).of_response([-1.0, None]).isnan().tolist() == [False, True]


class Texts:
    """Three answers of a policy that is a table of logits, in float64, away from where the update began."""

    def __init__(self) -> None:
        random = torch.Generator().manual_seed(11)
        self.lengths = [5, 2, 4]
        self.logits = [torch.randn(n, 9, generator=random, dtype=torch.float64) for n in self.lengths]
        self.tokens = [torch.randint(0, 9, (n,), generator=random) for n in self.lengths]
        self.old = [self._said(x).detach() + 0.3 * torch.randn(len(x), generator=random).double() for x in self.logits]
        self.ref = [x - 0.5 * torch.randn(len(x), generator=random).double() for x in self.old]
        self.mu = [x + 0.4 * torch.randn(len(x), generator=random).double() for x in self.old]
        self.advantage = [torch.randn(n, generator=random, dtype=torch.float64) for n in self.lengths]
        self.c_pg = losses.turn_weights(self.lengths, "turn-mean")
        self.weight = [losses.importance_weight(o, m, 2.0) for o, m in zip(self.old, self.mu, strict=True)]

    def _said(self, logits: Tensor) -> Tensor:
        tokens = self.tokens[[x is logits for x in self.logits].index(True)]
        return logits.log_softmax(-1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1)

    def gradients(self, loss_of: list[Tensor]) -> list[Tensor]:
        return list(torch.autograd.grad(torch.stack(loss_of).sum(), self.logits))

    def logprobs(self) -> list[Tensor]:
        for x in self.logits:
            x.requires_grad_()
        return [self._said(x) for x in self.logits]


def ppo_of_the_api(logp: Tensor, old: Tensor, advantage: Tensor) -> Tensor:
    """`−min(ρ a, clip(ρ) a)` of each token, as the API's page and SkyRL's code have it."""
    ratio = (logp - old).exp()
    return -torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP[0], 1 + CLIP[1]) * advantage)


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_the_surrogate_has_the_gradient_of_ours_also_where_it_is_clipped(reduction) -> None:
    texts = Texts()
    ours = [
        c * losses.clipped_surrogate(logp, old, a, w, *CLIP)[0].sum()
        for logp, old, a, w, c in zip(
            texts.logprobs(), texts.old, texts.advantage, texts.weight, texts.c_pg, strict=True
        )
    ]
    expected = texts.gradients(ours)
    folded = [
        folded_advantage(a, w, old, ref, c, 0.0, 0.0)
        for a, w, old, ref, c in zip(texts.advantage, texts.weight, texts.old, texts.ref, texts.c_pg, strict=True)
    ]
    told = undone(folded, texts.lengths, reduction)
    per_token = [ppo_of_the_api(*one) for one in zip(texts.logprobs(), texts.old, told, strict=True)]
    theirs = [x.sum() if reduction == "sum" else x.mean() / len(per_token) for x in per_token]
    for one, other in zip(expected, texts.gradients(theirs), strict=True):
        assert (one - other).abs().max() < 1e-12
    clipped = [losses.clipped_surrogate(*one, *CLIP)[1] for one in zip(
        texts.logprobs(), texts.old, texts.advantage, texts.weight, strict=True)]  # fmt: skip
    assert 0 < sum(int(c.sum()) for c in clipped) < sum(texts.lengths)


def test_over_all_that_can_be_sampled_the_kl_has_the_gradient_of_the_exact_one() -> None:
    random = torch.Generator().manual_seed(5)
    logits = torch.randn(1, 7, generator=random, dtype=torch.float64).requires_grad_()
    base = torch.randn(1, 7, generator=random, dtype=torch.float64).log_softmax(-1)
    sampler = torch.randn(7, generator=random, dtype=torch.float64).log_softmax(-1)
    table = logits.log_softmax(-1)
    (exact,) = torch.autograd.grad(
        0.3 * 0.5 * losses.divergence(table, base, "reverse").sum(), logits, retain_graph=True
    )
    old, nothing = table[0].detach(), torch.zeros(7, dtype=torch.float64)
    weight = losses.importance_weight(old, sampler, cap=1e9)
    folded = folded_advantage(nothing, weight, old, base[0], 1.0, 0.5, 0.3)
    # Each token as often as the sampler says it.
    (mean,) = torch.autograd.grad((sampler.exp() * ppo_of_the_api(table[0], old, folded)).sum(), logits)
    assert (exact - mean).abs().max() < 1e-12
    assert exact.abs().max() > 1e-3
