"""The gate's decision is a function of five numbers; its measurements are taken on real weights."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from tests.training.tiny import batch, no_tick, sample, train_config
from turnwise.config import GateConfig
from turnwise.training.gate import Measurements, decide, measure, repetition
from turnwise.training.policy import Policy
from turnwise.training.step import compute_signals

FINE = Measurements(nll_rise=0.1, kl=0.3, repetition=0.05, length_ratio=1.1, probes=8, answers=4)
LIMITS = GateConfig(max_nll_rise=0.5, max_kl=1.5, max_repetition=0.35, max_length_ratio=4.0)


def test_a_sound_candidate_is_accepted_and_its_figures_are_kept() -> None:
    result = decide(FINE, LIMITS)
    assert result["accepted"] is True
    assert result["reasons"] == []
    assert result["kl"] == 0.3


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"nll_rise": 0.51}, "well-judged"),
        ({"kl": 1.51}, "base model"),
        ({"repetition": 0.36}, "repetitions"),
        ({"length_ratio": 4.1}, "as long"),
        ({"length_ratio": 0.2}, "as long"),  # an answer that has all but vanished is no better than one that explodes
        ({"kl": math.nan}, "base model"),
        ({"nll_rise": math.nan}, "well-judged"),
    ],
)
def test_each_figure_beyond_its_limit_refuses_and_says_why(changes: dict[str, float], word: str) -> None:
    result = decide(replace(FINE, **changes), LIMITS)
    assert result["accepted"] is False
    assert len(result["reasons"]) == 1
    assert word in result["reasons"][0]


def test_what_could_not_be_measured_is_not_held_against_the_candidate() -> None:
    assert decide(replace(FINE, nll_rise=None, repetition=None, length_ratio=None), LIMITS)["accepted"] is True


def test_repetition_is_the_share_of_repeated_4_grams() -> None:
    assert repetition([[1, 2, 3, 4, 5, 6]]) == 0.0
    assert repetition([[1, 1, 1, 1, 1, 1]]) == pytest.approx(2 / 3)  # three 4-grams, one of them new
    assert repetition([[1, 2, 3, 4], [1, 2, 3, 4]]) == 0.0  # two answers may agree
    assert repetition([[1, 2], []]) is None


def candidate(policy: Policy, size: float) -> None:
    generator = torch.Generator().manual_seed(1)
    policy.load({n: t + size * torch.randn(t.shape, generator=generator) for n, t in policy.state().items()})


def test_the_parent_itself_has_no_rise_and_no_distance(policy: Policy) -> None:
    data = batch([sample(n) for n in range(3)])
    signals = compute_signals(policy, data, train_config(), no_tick)
    got = measure(policy, None, data, signals, [sample(9)], train_config(), no_tick)
    assert got.nll_rise == 0.0
    assert got.kl == pytest.approx(0.0, abs=1e-6)
    assert (got.probes, got.answers) == (1, 3)


def test_a_wrecked_candidate_is_measured_as_such_and_stays_in_place(policy: Policy) -> None:
    data = batch([sample(n) for n in range(3)])
    signals = compute_signals(policy, data, train_config(), no_tick)
    questions = [sample(n) for n in range(10, 18)]
    answers = policy.sample([q.prompt_ids for q in questions], 1.0, 12, seed=0)
    probes = [replace(q, response_ids=a, temperature=1.0) for q, a in zip(questions, answers, strict=True)]
    candidate(policy, 0.4)
    before = policy.state()
    got = measure(policy, None, data, signals, probes, train_config(), no_tick)
    assert got.nll_rise is not None and got.nll_rise > 0.5
    assert got.kl > 0.5
    assert all(torch.equal(policy.state()[name], before[name]) for name in before)


def test_without_probes_the_other_figures_are_still_taken(policy: Policy) -> None:
    data = batch([sample(1)])
    signals = compute_signals(policy, data, train_config(), no_tick)
    got = measure(policy, None, data, signals, [], train_config(), no_tick)
    assert got.nll_rise is None
    assert got.length_ratio is not None
