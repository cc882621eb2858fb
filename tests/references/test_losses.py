"""Losses, advantages, averages and KL against two public implementations, on the same inputs, in float64.

`make test-references` runs this in an environment of its own that has them; elsewhere it is skipped.
"""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace

import numpy
import pytest
import torch
from torch import Tensor

verl = pytest.importorskip("verl.trainer.ppo.core_algos", reason="see `make test-references`")
corrections = pytest.importorskip("verl.trainer.ppo.rollout_corr_helper")
grpo = pytest.importorskip("trl.trainer.grpo_trainer")
gkd = pytest.importorskip("trl.experimental.gkd.gkd_trainer")

from turnwise.training import losses  # noqa: E402
from turnwise.training.algorithms.opd import less_others  # noqa: E402
from turnwise.training.scores import ScoreHistory, centred  # noqa: E402

CLOSE = 1e-6
LOW, HIGH = 0.2, 0.28
LENGTHS = [7, 1, 4, 0, 12, 3]
"""Turns of many lengths, of one token, and one that is masked as a whole."""
AGGREGATIONS = {"turn-mean": "seq-mean-token-mean", "token-mean": "token-mean"}


def turns(seed: int) -> SimpleNamespace:
    """Log-probs [B, R] and what goes with them, padded; the mask says which are real."""
    g = torch.Generator().manual_seed(seed)
    shape = len(LENGTHS), max(LENGTHS)
    old = -torch.rand(shape, generator=g, dtype=torch.float64) * 5
    made = SimpleNamespace(
        old=old,
        new=old + torch.randn(shape, generator=g, dtype=torch.float64) * 0.4,
        ref=old + torch.randn(shape, generator=g, dtype=torch.float64) * 0.8,
        sampled=old + torch.randn(shape, generator=g, dtype=torch.float64) * 0.5,
        advantage=torch.randn(shape, generator=g, dtype=torch.float64),
        mask=(torch.arange(shape[1]) < torch.tensor(LENGTHS).unsqueeze(1)).double(),
    )
    # Ties with the clip's edges and with no move at all, no advantage, and probabilities that are none or far away.
    made.new[0, :4] = made.old[0, :4] + torch.tensor([0.0, 1 - LOW, 1 + HIGH, 1.0]).double().log().nan_to_num(neginf=0)
    made.advantage[0, 4:6] = 0.0
    made.new[4, :4] = made.old[4, :4] + torch.tensor([60.0, -60.0, 25.0, -torch.inf]).double()
    return made


def ours(per_token: Tensor, aggregation: losses.Aggregation) -> Tensor:
    weights = torch.tensor(losses.turn_weights(LENGTHS, aggregation), dtype=torch.float64)
    real = [per_token[i, :n].sum() * weights[i] for i, n in enumerate(LENGTHS)]
    return torch.stack(real).sum()


def compared(found: Tensor, expected: Tensor, by: Tensor) -> None:
    """Value and gradient."""
    assert found.item() == pytest.approx(expected.item(), abs=CLOSE, rel=CLOSE)
    one, other = (torch.autograd.grad(loss, by, retain_graph=True)[0] for loss in (found, expected))
    assert (one - other).abs().max().item() < CLOSE * max(1.0, other.abs().max().item())


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("seed", range(5))
def test_the_surrogate_and_its_average_equal_verls(seed: int, aggregation: losses.Aggregation) -> None:
    t = turns(seed)
    new = t.new.clone().requires_grad_()
    expected, share, *_ = verl.compute_policy_loss(
        t.old,
        new,
        t.advantage,
        t.mask,
        cliprange_low=LOW,
        cliprange_high=HIGH,
        clip_ratio_c=1e30,
        loss_agg_mode=AGGREGATIONS[aggregation],
    )
    per_token, cut = losses.clipped_surrogate(new, t.old, t.advantage, torch.ones_like(new), LOW, HIGH)
    compared(ours(per_token, aggregation), expected, new)
    assert (cut * t.mask).sum().item() / sum(LENGTHS) == pytest.approx(float(share), abs=CLOSE)


@pytest.mark.parametrize("seed", range(5))
def test_the_importance_weight_equals_verls(seed: int) -> None:
    t = turns(seed)
    t.sampled[4, 4:8] = t.old[4, 4:8] - torch.tensor([60.0, -60.0, torch.inf, 0.0]).double()
    expected, _ = corrections.compute_rollout_correction_weights(
        t.old - t.sampled, t.mask, rollout_is="token", rollout_is_threshold=2.0
    )
    assert (losses.importance_weight(t.old, t.sampled, 2.0) * t.mask - expected).abs().max().item() < CLOSE


def test_k3_equals_verls_as_far_as_verl_goes() -> None:
    """It cuts the estimate itself at 10 as well."""
    new = torch.tensor([-1.0, -1.0, -3.0, -0.1, -9.0], dtype=torch.float64, requires_grad=True)
    ref = torch.tensor([-1.0, -1.7, -0.8, -8.0, -9.0 + 1e-9], dtype=torch.float64)
    compared(losses.k3(new, ref).sum(), verl.kl_penalty(new, ref, "low_var_kl").sum(), new)


def trl_loss(t: SimpleNamespace, new: Tensor, kind: str, beta: float) -> Tensor:
    """`GRPOTrainer._compute_loss` on given log-probs: what it asks of a trainer stands in for one."""
    kept = [i for i, n in enumerate(LENGTHS) if n]  # it would count a turn that is masked as a whole
    weight = losses.importance_weight(t.old, t.sampled, 2.0)
    fields = {
        "_get_per_token_logps_and_entropies": lambda *_, **__: (new[kept], torch.zeros_like(new[kept]), None),
        "accelerator": SimpleNamespace(
            gather=lambda x: x, gather_for_metrics=lambda x: x, reduce=lambda x, **_: x, num_processes=1
        ),
        "_metrics": {"eval": defaultdict(list), "train": defaultdict(list)},
        "args": SimpleNamespace(delta=None, use_bias_correction_kl=False),
        "model": SimpleNamespace(training=False),
        "aux_loss_enabled": False,
        "top_entropy_quantile": 1.0,
        "off_policy_mask_threshold": None,
        "importance_sampling_level": "token",
        "beta": beta,
        "epsilon_low": LOW,
        "epsilon_high": HIGH,
        "loss_type": kind,
        "use_vllm": True,
        "vllm_importance_sampling_correction": True,
        "_entropy_bonus_enabled": False,
        "current_gradient_accumulation_steps": 1,
    }
    given = {
        "prompt_ids": torch.zeros(len(kept), 1, dtype=torch.long),
        "prompt_mask": torch.ones(len(kept), 1),
        "completion_ids": torch.zeros(len(kept), new.shape[1], dtype=torch.long),
        "completion_mask": t.mask[kept],
        "advantages": t.advantage[kept],
        "old_per_token_logps": t.old[kept],
        "ref_per_token_logps": t.ref[kept],
        "importance_sampling_ratio": weight[kept],
        "num_items_in_batch": t.mask.sum(),
    }
    return grpo.GRPOTrainer._compute_loss(SimpleNamespace(**fields), None, given)


@pytest.mark.parametrize(("kind", "aggregation"), [("grpo", "turn-mean"), ("dapo", "token-mean")])
@pytest.mark.parametrize("seed", range(5))
def test_surrogate_weight_and_k3_together_equal_trls(seed: int, kind: str, aggregation: losses.Aggregation) -> None:
    t = turns(seed)
    t.new[4, :4] = t.old[4, :4] + torch.tensor([6.0, -6.0, 2.0, -12.0]).double()  # it cuts no log-ratio
    new = t.new.clone().requires_grad_()
    weight = losses.importance_weight(t.old, t.sampled, 2.0)
    per_token, _ = losses.clipped_surrogate(new, t.old, t.advantage, weight, LOW, HIGH)
    found = ours(per_token + 0.02 * losses.k3(new, t.ref), aggregation)
    compared(found, trl_loss(t, new, kind, beta=0.02), new)


def logits(seed: int, words: int, spread: float) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    both = torch.randn(2, 1, 5, words, generator=g, dtype=torch.float64) * spread
    return both[0], both[1]


@pytest.mark.parametrize(("direction", "beta"), [("reverse", 1), ("forward", 0)])
@pytest.mark.parametrize(("words", "spread"), [(3, 1.0), (500, 4.0), (50_000, 2.0), (50_000, 12.0)])
@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_the_divergence_equals_trls(
    direction: losses.Divergence, beta: int, words: int, spread: float, temperature: float
) -> None:
    student, teacher = logits(words, words, spread)
    student = student.requires_grad_()
    expected = gkd.GKDTrainer.generalized_jsd_loss(
        student, teacher, beta=beta, temperature=temperature, reduction="sum"
    )
    tables = [(x / temperature).log_softmax(-1) for x in (student, teacher)]
    compared(losses.divergence(*tables, direction).sum(), expected, student)


@pytest.mark.parametrize(("direction", "beta"), [("reverse", 1), ("forward", 0)])
def test_words_that_both_rule_out_are_as_if_they_were_not_there(direction: losses.Divergence, beta: int) -> None:
    student, teacher = logits(3, 40, 2.0)
    student = student.requires_grad_()
    expected = gkd.GKDTrainer.generalized_jsd_loss(student, teacher, beta=beta, reduction="sum")
    ruled_out = torch.full((1, 5, 7), float("-inf"), dtype=torch.float64)
    tables = [torch.cat([x, ruled_out], dim=-1).log_softmax(-1) for x in (student, teacher)]
    compared(losses.divergence(*tables, direction).sum(), expected, student)


@pytest.mark.parametrize(("direction", "beta"), [("reverse", 1), ("forward", 0)])
@pytest.mark.parametrize("k", [1, 50])
def test_top_k_is_the_divergence_of_the_folded_distributions(direction: losses.Divergence, beta: int, k: int) -> None:
    student, teacher = logits(k, 2_000, 2.0)
    student = student.requires_grad_()
    tables = [x[0].log_softmax(-1) for x in (student, teacher)]
    kept = tables[1].argsort(dim=-1, descending=True)[:, :k]
    bins = [torch.cat([x.exp().gather(-1, kept), 1 - x.exp().gather(-1, kept).sum(-1, keepdim=True)], -1).log()
            for x in tables]  # fmt: skip
    expected = gkd.GKDTrainer.generalized_jsd_loss(*bins, beta=beta, reduction="sum")
    ids = losses.top_tokens(tables[1], k)
    compared(losses.divergence(*(losses.fold_tail(x, ids) for x in tables), direction).sum(), expected, student)


def rloo(scores: list[float], groups: list[int]) -> list[float]:
    """verl's leave-one-out advantage of answers of one token."""
    rewards = torch.tensor(scores, dtype=torch.float64).unsqueeze(-1)
    found, _ = verl.compute_rloo_outcome_advantage(rewards, torch.ones_like(rewards), numpy.array(groups))
    return found.squeeze(-1).tolist()


@pytest.mark.parametrize(
    "scores", [[0.3, -1.7, 2.2], [-1.0, -1.0, -1.0, -1.0], [0.4], [], [1e6, -1e-6, 5.0], [-3.0, -3.0, 2.0]], ids=str
)
def test_the_sampled_estimators_baseline_equals_verls_rloo(scores: list[float]) -> None:
    """Ties, a group of one, which has no baseline, and one of none."""
    found = less_others([torch.tensor([s], dtype=torch.float64) for s in scores], limit=1e9)
    assert [float(a) for a in found] == pytest.approx(rloo(scores, [0] * len(scores)) if scores else [], rel=1e-9)


@pytest.mark.parametrize("scores", [[-1.0], [-1.0] * 8, [-1.0] * 6 + [1.0] * 2, [1.0, -1.0]], ids=str)
@pytest.mark.parametrize("before", [[], [-1.0] * 12 + [1.0] * 4])
def test_the_scores_baseline_equals_verls_rloo_in_a_group_with_eight_zeroes(
    scores: list[float], before: list[float]
) -> None:
    group = [*scores, *before, *([0.0] * 8)]
    expected = rloo(group, [0] * len(group))[: len(scores)]
    assert centred(scores, ScoreHistory().after(before)) == pytest.approx(expected, abs=1e-9)
