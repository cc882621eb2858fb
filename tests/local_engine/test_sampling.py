"""Choosing tokens: the distribution, its cuts, and the log-probs of algorithms §Notation."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from turnwise.local_engine.requests import RequestParams
from turnwise.local_engine.sampling import sample

LOGITS = torch.tensor([[2.0, 1.0, 0.0, -1.0]])


def one(uniform: float = 0.5, logits: torch.Tensor = LOGITS, **params: Any) -> tuple[int, float]:
    ids, logprobs = sample(logits, [RequestParams(max_tokens=1, **params)], [uniform])
    return ids[0], logprobs[0]


def grid(**params: Any) -> list[int]:
    """The tokens that 1000 evenly spread uniforms choose."""
    return [one((i + 0.5) / 1000, **params)[0] for i in range(1000)]


def test_temperature_0_takes_the_likeliest_and_counts_as_1_in_the_log_prob() -> None:
    assert one(temperature=0.0) == (0, pytest.approx(torch.log_softmax(LOGITS, -1)[0, 0].item(), abs=1e-6))


def test_the_log_prob_is_of_the_logits_over_the_temperature() -> None:
    token, logprob = one(0.99, temperature=2.0)
    assert logprob == pytest.approx(torch.log_softmax(LOGITS / 2, -1)[0, token].item(), abs=1e-6)


def test_cutting_the_vocabulary_leaves_the_log_prob_as_it_is() -> None:
    assert one(0.1, top_p=0.5)[1] == one(0.1)[1] == one(0.1, top_k=2)[1]


def test_tokens_come_in_proportion_to_their_probability() -> None:
    counts = torch.bincount(torch.tensor(grid(temperature=0.7)), minlength=4) / 1000
    assert torch.allclose(counts, torch.softmax(LOGITS[0] / 0.7, -1), atol=2e-3)


def test_top_k_keeps_the_k_likeliest() -> None:
    assert set(grid(top_k=2)) == {0, 1}


def test_top_p_keeps_the_least_number_of_tokens_that_reach_p() -> None:
    # The probabilities are 0.644, 0.237, 0.087, 0.032.
    assert set(grid(top_p=0.6)) == {0}
    assert set(grid(top_p=0.7)) == {0, 1}
    assert set(grid(top_p=0.97)) == {0, 1, 2, 3}


def test_top_p_is_taken_of_what_top_k_left() -> None:
    # Of the first two, 0.644 / 0.881 = 0.73 belongs to the first.
    assert set(grid(top_k=2, top_p=0.72)) == {0}
    assert set(grid(top_k=2, top_p=0.74)) == {0, 1}


def test_a_nucleus_wider_than_the_first_look_is_kept_whole() -> None:
    flat = torch.zeros(1, 5000)
    chosen = {one((i + 0.5) / 400, logits=flat, top_p=0.9)[0] for i in range(400)}
    assert len(chosen) == 400


def test_a_token_of_probability_0_is_never_chosen() -> None:
    logits = torch.tensor([[float("-inf"), 0.0, float("-inf"), 0.0, float("-inf")]])
    assert {one(u, logits=logits)[0] for u in (0.0, 0.25, 0.5, 0.75, 1 - 2**-53)} == {1, 3}


def test_rows_with_different_settings_do_not_touch_each_other() -> None:
    settings = [RequestParams(1, temperature=0.0), RequestParams(1, top_k=1), RequestParams(1, temperature=0.5)]
    ids, logprobs = sample(LOGITS.repeat(3, 1), settings, [0.0, 0.9, 0.999])
    alone = [sample(LOGITS, [p], [u]) for p, u in zip(settings, [0.0, 0.9, 0.999], strict=True)]
    assert (ids, logprobs) == ([a[0][0] for a in alone], [pytest.approx(a[1][0]) for a in alone])


def test_a_large_vocabulary_is_chosen_from_as_by_one_running_sum() -> None:
    generator = torch.Generator().manual_seed(0)
    for size in (151_936, 1_000, 65, 64, 1):  # whole blocks, and a rest
        logits = 3 * torch.randn(20, size, generator=generator)
        logits[:, 1::3] = float("-inf")
        uniforms = [*torch.rand(16, generator=generator, dtype=torch.float64).tolist(), 0.0, 0.5, 2**-60, 1 - 2**-53]
        chosen, _ = sample(logits, [RequestParams(1)] * 20, uniforms)
        probs = torch.softmax(logits.double(), -1)
        cumulative = probs.cumsum(-1)
        for row, (token, uniform) in enumerate(zip(chosen, uniforms, strict=True)):
            assert probs[row, token] > 0
            reached = float(cumulative[row, token] / cumulative[row, -1])
            assert reached - float(probs[row, token]) - 1e-6 <= uniform <= reached + 1e-6


@pytest.mark.parametrize("uniform", [0.0, 0.5, 1 - 2**-53])
@pytest.mark.parametrize("at", [0, 63, 64, 150])
def test_a_block_without_probability_is_never_chosen_from(at: int, uniform: float) -> None:
    logits = torch.full((1, 200), float("-inf"))
    logits[0, at] = 1.0
    assert one(uniform, logits=logits)[0] == at
