"""The terms of the loss: at which temperature each is taken, and how far a step goes by what it holds."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from tests.training.stepping import assert_close, gradient
from tests.training.tiny import batch, no_tick, plain_model, sample, shake, train_config
from turnwise.training.policy import Policy
from turnwise.training.step import compute_signals, optimiser_step, step_scale
from turnwise.types import Sample

# -- temperature ----------------------------------------------------------------------------------------------------


pytestmark = pytest.mark.usefixtures("both_weights")


@pytest.mark.parametrize("settings", [{}, {"estimator": "topk", "top_k": 20}, {"divergence": "forward"}], ids=str)
@pytest.mark.parametrize("temperature", [0.0, 0.1, 0.3, 0.7])
def test_what_a_hint_teaches_does_not_depend_on_the_recorded_temperature(
    tiny_dir: Path, settings: dict[str, object], temperature: float
) -> None:
    """The same turn at T = 0.1 had a gradient some 90 times as long as at T = 1 when both were compared at T."""
    config = train_config(method="opd", beta_kl=0.5, **settings)
    warm = gradient(tiny_dir, [sample(1, temperature=1.0)], config, [0])
    assert_close(warm, gradient(tiny_dir, [sample(1, temperature=temperature)], config, [0]))


@pytest.mark.parametrize("temperature", [0.3, 1.5])
def test_a_surrogate_is_taken_at_the_recorded_temperature(tiny_dir: Path, temperature: float) -> None:
    """Its gradient at ratio 1 is that of −log π(a) at the temperature that a was sampled at."""
    one = sample(1, temperature=temperature, reward=1.0, hint=None)
    config = train_config(beta_kl=0.0)
    policy = Policy(tiny_dir, config)
    logits = policy.model(input_ids=torch.tensor([one.prompt_ids + one.response_ids])).logits[0]
    table = (logits[len(one.prompt_ids) - 1 : -1] / temperature).log_softmax(-1)
    loss = -torch.stack([table[k, y] for k, y in enumerate(one.response_ids)]).mean()
    assert_close(list(torch.autograd.grad(loss, policy.parameters())), gradient(tiny_dir, [one], config, [0]))


# -- KL to the base model -------------------------------------------------------------------------------------------


def test_the_kl_is_that_of_the_whole_distributions_and_k3_stands_beside_it(policy: Policy, tiny_dir: Path) -> None:
    config = train_config(method="binary", beta_kl=0.25)
    adapter = shake(policy)
    one = sample(1, temperature=0.5, reward=-1.0)
    signals = compute_signals(policy, batch([one]), config, no_tick)
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.0)
    metrics = optimiser_step(policy, optimizer, batch([one]), signals, [0], config, no_tick)

    def table(weights: dict[str, torch.Tensor] | None, temperature: float) -> torch.Tensor:
        model = plain_model(tiny_dir, weights, config)
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([one.prompt_ids + one.response_ids])).logits[0]
        return (logits[len(one.prompt_ids) - 1 : -1].double() / temperature).log_softmax(-1)

    ours, base = table(adapter, 1.0), table(None, 1.0)
    kl = (ours.exp() * (ours - base)).sum(-1).mean().item()
    assert metrics["kl"] == pytest.approx(kl, rel=1e-4)
    assert metrics["loss"] == pytest.approx(1.0 + 0.25 * kl, rel=1e-4)
    gap = torch.stack([(table(None, 0.5) - table(adapter, 0.5))[k, y] for k, y in enumerate(one.response_ids)])
    assert metrics["k3"] == pytest.approx((gap.exp() - gap - 1).mean().item(), rel=1e-3)


def test_the_kl_s_gradient_is_that_of_the_policy_from_the_base_and_not_the_other_way(tiny_dir: Path) -> None:
    """k3 of one's own samples has, in expectation, the gradient of KL(base ‖ policy): another direction."""
    config = train_config(method="binary", beta_kl=1.0, grad_clip=1e9)
    one = sample(1, reward=0.0, hint=None)
    policy = Policy(tiny_dir, config)
    shake(policy)
    signals = compute_signals(policy, batch([one]), config, no_tick)
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.0)
    optimiser_step(policy, optimizer, batch([one]), signals, [0], config, no_tick)
    found = [p.grad.clone() for p in policy.parameters() if p.grad is not None]

    row = torch.tensor([one.prompt_ids + one.response_ids])
    ours = policy.model(input_ids=row).logits[0, len(one.prompt_ids) - 1 : -1].log_softmax(-1)
    with torch.no_grad(), policy.reference():
        base = policy.model(input_ids=row).logits[0, len(one.prompt_ids) - 1 : -1].log_softmax(-1)
    reverse, forward = (ours.exp() * (ours - base)).sum(-1).mean(), (base.exp() * (base - ours)).sum(-1).mean()
    assert_close(list(torch.autograd.grad(reverse, policy.parameters(), retain_graph=True)), found)
    with pytest.raises(AssertionError):
        assert_close(list(torch.autograd.grad(forward, policy.parameters())), found)


@pytest.mark.parametrize("estimator", ["exact", "sampled"])
def test_what_is_measured_is_the_sum_over_all_chunks(
    tiny_dir: Path, monkeypatch: pytest.MonkeyPatch, estimator: str
) -> None:
    config = train_config(estimator=estimator)
    policy, data = Policy(tiny_dir, config), batch([sample(n) for n in range(3)])
    shake(policy)
    signals = compute_signals(policy, data, config, no_tick)
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.0)
    whole = optimiser_step(policy, optimizer, data, signals, range(3), config, no_tick)
    monkeypatch.setattr("turnwise.training.terms.HEAD_CHUNK", 3)
    assert optimiser_step(policy, optimizer, data, signals, range(3), config, no_tick) == pytest.approx(whole, rel=1e-4)
    assert whole["tokens"] == sum(len(one.response_ids) for one in data.samples)


# -- how far a step goes --------------------------------------------------------------------------------------------


def kinds() -> list[Sample]:
    """Two of a score, two of a hint, and two of the KL term alone."""
    scored = [sample(n, hint=None) for n in (1, 2)]
    hinted = [sample(n, reward=0.0) for n in (3, 4)]
    return [*scored, *hinted, *(sample(n, reward=0.0, hint=None) for n in (5, 6))]


@pytest.mark.parametrize(
    ("chosen", "minibatch", "scale"),
    [
        ([0], 8, math.sqrt(1 / 8)),
        ([0, 2], 8, 0.5),
        ([0, 4, 5], 8, math.sqrt(1 / 8)),  # two of these teach nothing
        ([4], 4, 0.5),  # nor does this one, which is counted as one
        ([0, 1, 2, 3], 4, 1.0),
        ([0, 1, 2, 3], 2, 1.0),
    ],
)
def test_a_step_is_as_large_as_what_it_holds(policy: Policy, chosen: list[int], minibatch: int, scale: float) -> None:
    config = train_config(minibatch=minibatch)
    signals = compute_signals(policy, batch(kinds()), config, no_tick)
    assert step_scale(signals, chosen, config) == pytest.approx(scale)


def test_the_weights_move_by_the_scale_of_the_step(tiny_dir: Path) -> None:
    one = sample(1, hint=None)

    def moved(minibatch: int) -> tuple[list[torch.Tensor], dict[str, float]]:
        config = train_config(minibatch=minibatch)
        policy = Policy(tiny_dir, config)
        before = [p.detach().clone() for p in policy.parameters()]
        signals = compute_signals(policy, batch([one]), config, no_tick)
        optimizer = torch.optim.AdamW(policy.parameters(), lr=0.01, weight_decay=0.1)
        metrics = optimiser_step(policy, optimizer, batch([one]), signals, [0], config, no_tick)
        assert [group["lr"] for group in optimizer.param_groups] == [0.01], "as it was"
        return [p.detach() - b for p, b in zip(policy.parameters(), before, strict=True)], metrics

    whole, metrics = moved(1)
    quarter, smaller = moved(16)
    assert (metrics["step_scale"], smaller["step_scale"]) == (1.0, 0.25)
    assert_close([w / 4 for w in whole], quarter)
