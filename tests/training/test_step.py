"""The update: signs, zeroes, denominators, and that it is the same however it is cut up."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.training.stepping import assert_close, gradient, taught, update
from tests.training.tiny import batch, ids, no_tick, sample, train_config
from turnwise.training.batching import Row, row_of
from turnwise.training.policy import Policy
from turnwise.training.step import (
    BadBatch,
    compute_signals,
    optimiser_step,
    plan,
    sampler_gap,
)
from turnwise.training.terms import Signals, TermWeights
from turnwise.types import Batch, Sample

pytestmark = pytest.mark.usefixtures("both_weights")
DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")),
]


# -- signs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("reward", [1.0, -1.0])
def test_a_good_answer_becomes_more_likely_and_a_bad_one_less(tiny_dir: Path, reward: float, device: str) -> None:
    (change,), _ = update(tiny_dir, [sample(1, reward=reward, hint=None)], train_config(device=device))
    assert change * reward > 0


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("divergence", ["reverse", "forward"])
@pytest.mark.parametrize("estimator", ["exact", "topk"])
@pytest.mark.parametrize("likes", [True, False], ids=["more-likely", "less-likely"])
def test_an_answer_moves_the_way_the_hint_points(
    tiny_dir: Path, estimator: str, divergence: str, likes: bool, device: str
) -> None:
    one = taught(tiny_dir, teacher_likes_it=likes)
    config = train_config(method="opd", estimator=estimator, divergence=divergence, device=device, minibatch=1)
    (change,), _ = update(tiny_dir, [one], config, steps=3)
    assert (change > 0) == likes


@pytest.mark.parametrize("device", DEVICES)
def test_sampled_estimator_moves_each_answer_the_way_its_hint_points(tiny_dir: Path, device: str) -> None:
    """Two turns, because the baseline is the mean over the batch: alone, a turn is its own baseline."""
    liked, disliked = taught(tiny_dir, teacher_likes_it=True), taught(tiny_dir, teacher_likes_it=False)
    config = train_config(method="opd", estimator="sampled", device=device)
    (up, down), _ = update(tiny_dir, [liked, disliked], config, steps=3)
    assert up > 0 > down


def test_combined_with_exact_adds_both_pulls(tiny_dir: Path) -> None:
    one = taught(tiny_dir, teacher_likes_it=False)
    bad = Sample(**{f: getattr(one, f) for f in Sample.__dataclass_fields__} | {"reward": -1.0})
    (both,), (metrics,) = update(tiny_dir, [bad], train_config(method="combined", minibatch=1))
    (alone,), _ = update(tiny_dir, [one], train_config(method="combined", minibatch=1))
    assert both < 0 and alone < 0
    assert metrics["pg"] == pytest.approx(1.0)  # -A at ratio 1
    assert metrics["opd"] > 0
    assert metrics["loss"] == pytest.approx(metrics["pg"] + 0.02 * metrics["kl"] + metrics["opd"])


# -- zeroes ---------------------------------------------------------------------------------------------------------


def test_an_empty_hint_gives_an_advantage_of_zero(tiny_dir: Path) -> None:
    policy = Policy(tiny_dir, train_config())
    data = batch([sample(1, hint="", reward=0.0)])
    for estimator in ("exact", "topk", "sampled"):
        (signals,) = compute_signals(policy, data, train_config(estimator=estimator), no_tick)
        assert not signals.advantage.any()
        assert signals.teacher is None


def test_a_hint_without_a_place_is_left_out_and_said(policy: Policy, caplog: pytest.LogCaptureFixture) -> None:
    data = batch([sample(1, hint_at=None), sample(2), sample(3, hint=None, hint_at=None)])
    with caplog.at_level(logging.WARNING):
        signals = compute_signals(policy, data, train_config(), no_tick)
    assert [s.teacher is not None for s in signals] == [False, True, False]
    assert [record.getMessage().split(":")[0] for record in caplog.records] == ["turn turn-1"]


@pytest.mark.parametrize("temperature", [0.0, 0.5, 1.0])
def test_a_hint_of_no_tokens_gives_zero_to_rounding(
    tiny_dir: Path, monkeypatch: pytest.MonkeyPatch, temperature: float
) -> None:
    """The teacher's own path with the same ids: same weights, same temperature, so no advantage is left over."""
    monkeypatch.setattr("turnwise.training.step.hinted_prompt", lambda prompt, *_: list(prompt))
    policy = Policy(tiny_dir, train_config())
    data = batch([sample(n, temperature=temperature, reward=0.0) for n in range(3)])
    config = train_config(method="opd", estimator="sampled")
    for signals in compute_signals(policy, data, config, no_tick):
        assert signals.advantage.abs().max().item() < 1e-5


def test_distillation_towards_oneself_does_not_move_the_weights(
    tiny_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnwise.training.step.hinted_prompt", lambda prompt, *_: list(prompt))
    config = train_config(method="opd", beta_kl=0.0)
    grads = gradient(tiny_dir, [sample(n) for n in range(3)], config, [0, 1, 2])
    assert max(g.abs().max().item() for g in grads) < 1e-5


def test_the_methods_use_only_their_signal(tiny_dir: Path) -> None:
    policy = Policy(tiny_dir, train_config())
    data = batch([sample(1)])
    (binary,) = compute_signals(policy, data, train_config(method="binary"), no_tick)
    (opd,) = compute_signals(policy, data, train_config(method="opd"), no_tick)
    assert binary.teacher is None and binary.advantage.unique().tolist() == [1.0]
    assert opd.teacher is not None and not opd.advantage.any()


def test_a_turn_without_recorded_logprobs_has_no_importance_weight(tiny_dir: Path) -> None:
    policy = Policy(tiny_dir, train_config())
    answer = sample(1).response_ids
    data = batch([sample(1), sample(2, response_ids=answer, logprobs=[-9.0] * len(answer))])
    missing, recorded = compute_signals(policy, data, train_config(), no_tick)
    assert missing.weight.tolist() == [1.0] * len(answer)
    assert recorded.weight.max().item() == 2.0  # the cap: the trainer finds these tokens much more likely


# -- denominators ---------------------------------------------------------------------------------------------------


def bridged() -> list[Sample]:
    """Six turns, two of them in one session whose ids extend one another."""
    samples = [sample(n) for n in range(5)]
    first = samples[0]
    prompt = [*first.prompt_ids, *first.response_ids, *ids(77, 5)]
    return [*samples, sample(5, session_id=first.session_id, prompt_ids=prompt, hint_at=len(prompt) - 1)]


def forked() -> list[Sample]:
    """Seven turns behind one system message: one without the thinking before it, and two answers to one prompt."""
    system = ids(90, 30)
    first = sample(0, session_id="s", prompt_ids=[*system, *ids(91, 6)], response_ids=ids(92, 12), hint_at=34)
    second = [*first.prompt_ids, *first.response_ids[8:], *ids(93, 6)]
    again = [*system, *ids(94, 9)]
    return [
        first,
        sample(1, session_id="s", prompt_ids=second, hint_at=len(second) - 2),
        *(sample(n, prompt_ids=again, hint_at=len(again) - 1) for n in (2, 3)),
        *(sample(n, prompt_ids=[*system, *ids(95 + n, 5)], hint_at=33) for n in (4, 5, 6)),
    ]


@pytest.mark.parametrize("teacher", ["base", "policy"])
@pytest.mark.parametrize("estimator", ["exact", "sampled"])
def test_what_the_turns_share_is_read_once_and_the_gradient_is_that_of_each_alone(
    tiny_dir: Path, monkeypatch: pytest.MonkeyPatch, estimator: str, teacher: str
) -> None:
    config = train_config(microbatch_tokens=4096, estimator=estimator, teacher=teacher)
    read: list[int] = []
    real = Policy.hidden

    def hidden(self: Policy, rows: Sequence[Row], recompute: bool = False) -> Tensor:
        read.append(sum(len(row.ids) for row in rows))
        return real(self, rows, recompute)

    monkeypatch.setattr(Policy, "hidden", hidden)
    chosen = list(range(7))
    shared, together = gradient(tiny_dir, forked(), config, chosen), sum(read)
    read.clear()
    monkeypatch.setattr(
        Policy,
        "rows_of",
        lambda self, texts: [row_of(text.sample, text.prompt_ids, text.response_ids) for text in texts],
    )
    assert_close(shared, gradient(tiny_dir, forked(), config, chosen), 1e-5)
    assert together < sum(read) / 2


@pytest.mark.parametrize("aggregation", ["turn-mean", "token-mean"])
@pytest.mark.parametrize("estimator", ["exact", "sampled"])
def test_the_size_of_microbatches_does_not_change_the_gradient(
    tiny_dir: Path, estimator: str, aggregation: str
) -> None:
    settings = {"estimator": estimator, "aggregation": aggregation}
    whole = gradient(tiny_dir, bridged(), train_config(microbatch_tokens=4096, **settings), [0, 1, 2, 3, 4, 5])
    parts = gradient(tiny_dir, bridged(), train_config(microbatch_tokens=64, **settings), [0, 1, 2, 3, 4, 5])
    assert_close(whole, parts)


def kept_for_backward(run: Callable[[], object]) -> int:
    """Bytes that autograd holds on to: each tensor's memory once."""
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        run()
    return sum(kept.values())


def test_a_row_longer_than_a_microbatch_is_computed_twice_instead_of_kept(
    tiny_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = [sample(1, prompt_ids=ids(1, 90), response_ids=ids(2, 70))]
    config = train_config(microbatch_tokens=64)
    asked: list[bool] = []
    real = Policy.hidden

    def hidden(self: Policy, rows: Sequence[Row], recompute: bool = False) -> Tensor:
        asked.append(recompute)
        return real(self, rows, recompute)

    monkeypatch.setattr(Policy, "hidden", hidden)
    sparing = gradient(tiny_dir, long, config, [0])
    assert asked[-1] and not any(asked[:-1]), "scoring keeps nothing anyway"
    plain = gradient(tiny_dir, long, train_config(microbatch_tokens=4096), [0])
    assert not asked[-1]
    assert all(torch.equal(a, b) for a, b in zip(sparing, plain, strict=True))

    policy, row = Policy(tiny_dir, config), row_of(0, long[0].prompt_ids, long[0].response_ids)
    everything = kept_for_backward(lambda: real(policy, [row]))
    assert kept_for_backward(lambda: real(policy, [row], True)) < everything / 2


def test_a_turn_without_hint_or_score_does_not_dilute_the_others(tiny_dir: Path) -> None:
    config = train_config(beta_kl=0.0)
    real = [sample(1), sample(2)]
    silent = [sample(n, reward=0.0, hint=None) for n in range(3, 8)]
    assert_close(gradient(tiny_dir, real, config, [0, 1]), gradient(tiny_dir, real + silent, config, list(range(7))))


@pytest.mark.parametrize(
    ("aggregation", "pg", "opd", "kl"),
    [("turn-mean", [1 / 2, 0], [0, 1 / 8], [1 / 4, 1 / 16]), ("token-mean", [1 / 2, 0], [0, 1 / 8], [1 / 10, 1 / 10])],
)
def test_each_term_is_averaged_over_the_turns_that_have_it(
    policy: Policy, aggregation: str, pg: list[float], opd: list[float], kl: list[float]
) -> None:
    """A score for an answer of 2 tokens and a hint for one of 8: neither stands in the other's denominator."""
    scored = sample(1, response_ids=ids(1, 2), hint=None)
    hinted = sample(2, response_ids=ids(2, 8), reward=0.0)
    config = train_config(aggregation=aggregation)
    weights = TermWeights.of(compute_signals(policy, batch([scored, hinted]), config, no_tick), [0, 1], config)
    for stream, expected in ((weights.pg, pg), (weights.opd, opd), (weights.kl, kl)):
        assert [stream[0], stream[1]] == pytest.approx(expected)


@pytest.mark.parametrize("estimator", ["exact", "topk", "sampled"])
def test_the_size_of_the_heads_chunks_does_not_change_the_gradient(
    tiny_dir: Path, monkeypatch: pytest.MonkeyPatch, estimator: str
) -> None:
    whole = gradient(tiny_dir, bridged(), train_config(estimator=estimator), [0, 1, 2, 3, 4, 5])
    monkeypatch.setattr("turnwise.training.policy.HEAD_CHUNK", 3)
    monkeypatch.setattr("turnwise.training.terms.HEAD_CHUNK", 3)
    assert_close(whole, gradient(tiny_dir, bridged(), train_config(estimator=estimator), [0, 1, 2, 3, 4, 5]))


def test_an_only_turn_without_signal_carries_the_kl_term_alone(tiny_dir: Path) -> None:
    _, (metrics,) = update(tiny_dir, [sample(1, reward=0.0, hint=None)], train_config())
    assert (metrics["pg"], metrics["opd"]) == (0.0, 0.0)


def test_kl_term_pulls_towards_the_base_model(tiny_dir: Path) -> None:
    data, config = batch([sample(1, reward=0.0, hint=None)]), train_config(beta_kl=1.0, lr=1e-3)
    policy = Policy(tiny_dir, config)
    generator = torch.Generator().manual_seed(1)
    policy.load({n: t + 0.03 * torch.randn(t.shape, generator=generator) for n, t in policy.state().items()})
    signals = compute_signals(policy, data, config, no_tick)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=config.lr, weight_decay=0.0)
    kls = [optimiser_step(policy, optimizer, data, signals, [0], config, no_tick)["kl"] for _ in range(8)]
    assert kls[0] > 0
    assert kls[-1] < kls[0]


# -- repeatable, stoppable ------------------------------------------------------------------------------------------


def test_the_same_update_gives_bit_identical_weights(tiny_dir: Path) -> None:
    def once() -> dict[str, Tensor]:
        config = train_config()
        policy = Policy(tiny_dir, config)
        data = batch(bridged())
        signals = compute_signals(policy, data, config, no_tick)
        optimizer = torch.optim.AdamW(policy.parameters(), lr=config.lr)
        for chosen in plan(data, config):
            optimiser_step(policy, optimizer, data, signals, chosen, config, no_tick)
        return policy.state()

    one, two = once(), once()
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_stopping_between_microbatches_leaves_the_weights_as_they_were(tiny_dir: Path) -> None:
    config = train_config(microbatch_tokens=64)
    policy, data = Policy(tiny_dir, config), batch(bridged())
    signals = compute_signals(policy, data, config, no_tick)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=config.lr)
    before = policy.state()

    def stop_at_the_second(phase: str, done: int, total: int) -> None:
        assert total > 1
        if done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        optimiser_step(policy, optimizer, data, signals, [0, 1, 2, 3, 4, 5], config, stop_at_the_second)
    assert all(torch.equal(policy.state()[name], before[name]) for name in before)
    assert not optimizer.state


def test_the_plan_passes_over_every_sample_once_an_epoch() -> None:
    steps = plan(batch([sample(n) for n in range(7)]), train_config(epochs=2, minibatch=3))
    assert len(steps) == 6
    assert sorted(i for step in steps[:3] for i in step) == list(range(7))
    assert sorted(i for step in steps[3:] for i in step) == list(range(7))
    assert steps[:3] != steps[3:]


# -- faults and figures ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"response_ids": []}, "no prompt or no response"),
        ({"prompt_ids": [], "hint_at": None}, "no prompt or no response"),
        ({"response_ids": [4, 260]}, "outside the model's vocabulary"),
        ({"response_ids": [4, 5], "logprobs": [-1.0]}, "1 log-probs for 2 tokens"),
        ({"hint_at": 99}, "outside the prompt"),
    ],
)
def test_a_sample_that_cannot_be_trained_on_is_named(policy: Policy, changes: dict, sentence: str) -> None:
    with pytest.raises(BadBatch, match=sentence):
        compute_signals(policy, batch([sample(1, **changes)]), train_config(), no_tick)


def test_a_non_finite_gradient_stops_the_update_before_the_weights_move(policy: Policy) -> None:
    config, data = train_config(), batch([sample(1, reward=float("inf"))])
    signals = compute_signals(policy, data, config, no_tick)
    before = policy.state()
    with pytest.raises(BadBatch, match="not finite"):
        optimiser_step(policy, torch.optim.AdamW(policy.parameters()), data, signals, [0], config, no_tick)
    assert all(torch.equal(policy.state()[name], before[name]) for name in before)


def own_logprobs(policy: Policy, data: Batch) -> list[Signals]:
    return compute_signals(policy, data, train_config(), no_tick)


def test_the_sampler_gap_is_taken_from_turns_of_the_parent_version_alone(policy: Policy) -> None:
    first, second = own_logprobs(policy, batch([sample(1), sample(2)]))
    near = sample(1, version=3, logprobs=(first.old + 0.5).tolist())
    stale = sample(2, version=2, logprobs=(second.old + 9.0).tolist())
    data = batch([near, stale, sample(3, version=3)], parent=3)
    assert sampler_gap(data, own_logprobs(policy, data)) == pytest.approx(0.5, abs=1e-5)
    assert sampler_gap(batch([stale], parent=3), [second]) is None
