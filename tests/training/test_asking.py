"""Answers sampled from the policy: by a seed, from the distribution that it has, whoever is asked beside them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch

from tests.training.tiny import ids, shake
from turnwise.training import asking
from turnwise.training.asking import sample_answers
from turnwise.training.gate.probes import Probe
from turnwise.training.gate.reading import read
from turnwise.training.policy import Policy


def test_answers_come_with_their_log_probs_and_not_for_ever(policy: Policy) -> None:
    prompts = [ids(1, 9), ids(2, 5)]
    answers = sample_answers(policy, prompts, 12, seed=3, time_s=60)
    assert answers is not None and answers == sample_answers(policy, prompts, 12, seed=3)
    assert answers != sample_answers(policy, prompts, 12, seed=4)
    for prompt, answer in zip(prompts, answers, strict=True):
        hidden = read(policy, [Probe(prompt, answer.ids, None, "own")], 64, lambda: None)[0]
        again = policy.token_logprobs(hidden, torch.ones(len(hidden)), torch.tensor(answer.ids))
        assert torch.allclose(again, torch.tensor(answer.logprobs), atol=1e-4)
        assert answer.ended is (answer.ids[-1] in policy.ends) and 1 <= len(answer.ids) <= 12
    assert sample_answers(policy, prompts, 12, seed=3, time_s=-1.0) is None


def test_the_time_in_which_it_is_made_to_stand_does_not_count(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(asking.time, "monotonic", lambda: now[0])

    def stands_for_an_hour() -> None:
        now[0] += 3600

    prompts = [ids(1, 9), ids(2, 5)]
    one_by_one = sample_answers(policy, prompts, 12, seed=3, time_s=60, alive=stands_for_an_hour, at_once=1)
    assert one_by_one is not None


def test_tokens_come_as_often_as_the_policy_says(policy: Policy) -> None:
    prompt, count, temperature = ids(1, 6), 600, 0.3
    answers = sample_answers(policy, [prompt] * count, 1, seed=0, temperature=temperature)
    assert answers is not None
    hidden = read(policy, [Probe(prompt, [0], None, "own")], 64, lambda: None)[0]
    expected = policy.log_softmax(hidden, torch.tensor([temperature]))[0].exp()
    drawn = Counter(answer.ids[0] for answer in answers)
    likely = expected.topk(5)
    for share, token in zip(likely.values.tolist(), likely.indices.tolist(), strict=True):
        assert drawn[token] / count == pytest.approx(share, abs=4 * (share * (1 - share) / count) ** 0.5 + 1e-3)
    unlikely = sum(expected[token].item() < 1e-6 for token in drawn)
    assert unlikely == 0


def test_without_a_temperature_each_token_is_the_likeliest(policy: Policy) -> None:
    answers = sample_answers(policy, [ids(1, 6), ids(2, 9)], 5, seed=0, temperature=0.0)
    assert answers is not None and answers == sample_answers(policy, [ids(1, 6), ids(2, 9)], 5, seed=9, temperature=0.0)
    for prompt, answer in zip([ids(1, 6), ids(2, 9)], answers, strict=True):
        hidden = read(policy, [Probe(prompt, answer.ids, None, "own")], 64, lambda: None)[0]
        table = policy.log_softmax(hidden, torch.ones(len(hidden)))
        assert table.argmax(-1).tolist() == answer.ids
        assert torch.allclose(table.max(-1).values, torch.tensor(answer.logprobs), atol=1e-4)


def test_a_token_of_no_probability_is_never_drawn() -> None:
    table = torch.tensor([[float("-inf"), 0.0, float("-inf"), float("-inf")]]).expand(500, -1)
    drawn = asking._draw(table, [torch.Generator().manual_seed(0)] * len(table))
    assert drawn.unique().tolist() == [1]


def test_who_is_asked_together_changes_no_likelihood(policy: Policy) -> None:
    shake(policy)
    prompts = [ids(1, 12), ids(2, 3), ids(3, 30), ids(4, 7)]
    together = sample_answers(policy, prompts, 8, seed=1)
    assert list(asking._together([len(p) for p in prompts], 8, asking.AT_ONCE)) == [[1, 3, 0, 2]]
    assert list(asking._together([len(p) for p in prompts], 8, 40)) == [[1, 3], [0], [2]]
    apart = sample_answers(policy, prompts, 8, seed=1, at_once=40)
    assert together is not None and apart is not None
    for prompt, one, other in zip(prompts, together, apart, strict=True):
        for answer in (one, other):
            hidden = read(policy, [Probe(prompt, answer.ids, None, "own")], 64, lambda: None)[0]
            again = policy.token_logprobs(hidden, torch.ones(len(hidden)), torch.tensor(answer.ids))
            assert torch.allclose(again, torch.tensor(answer.logprobs), atol=1e-4)


def test_prompts_that_are_read_in_passes_of_their_own_are_answered_as_alone(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    shake(policy)
    prompts = [ids(1, 12), ids(2, 3), ids(3, 60), ids(4, 7), ids(5, 61)]
    alone = [sample_answers(policy, [prompt], 8, 0, temperature=0.0) for prompt in prompts]
    for padding, read_in in ((0, 5), (10, 3), (1000, 1)):
        monkeypatch.setattr(asking, "PADDING", padding)
        assert len(asking._similar(sorted(prompts, key=len))) == read_in
        together = sample_answers(policy, prompts, 8, 0, temperature=0.0)
        assert together is not None
        assert [[a.ids] for a in together] == [[a.ids for a in one or []] for one in alone]


@pytest.mark.parametrize("forks", [True, False])
def test_a_model_that_reads_no_forks_reads_all_prompts_in_one_pass(
    policy: Policy, monkeypatch: pytest.MonkeyPatch, forks: bool
) -> None:
    shake(policy)
    prompts, read = [ids(2, 3), ids(1, 200)], list[list[int]]()
    expected = sample_answers(policy, prompts, 6, 0, temperature=0.0)
    usual = policy.next_logits

    def next_logits(tokens: torch.Tensor, *more: Any, **named: Any) -> Any:
        read.append([*tokens.shape])
        return usual(tokens, *more, **named)

    monkeypatch.setattr(policy, "next_logits", next_logits)
    monkeypatch.setattr(policy, "reads_forks", forks)
    found = sample_answers(policy, prompts, 6, 0, temperature=0.0)
    assert [shape for shape in read if shape[1] > 1] == ([[1, 3], [1, 200]] if forks else [[2, 200]])
    assert found is not None and expected is not None and [a.ids for a in found] == [a.ids for a in expected]


def test_a_prompt_draws_the_same_numbers_whoever_is_asked_beside_it(policy: Policy) -> None:
    shake(policy)
    prompts = [ids(1, 12), ids(2, 3), ids(3, 30)]
    alone = sample_answers(policy, prompts, 9, seed=4)
    beside = sample_answers(policy, [ids(5, 20), *prompts, *prompts], 9, seed=4, places=[7, 0, 1, 2, 0, 1, 2])
    assert alone is not None and beside is not None
    for some in (beside[1:4], beside[4:]):
        assert [a.ids for a in some] == [a.ids for a in alone]
    assert alone != sample_answers(policy, prompts, 9, seed=4, places=[1, 2, 3])


def test_each_answer_may_have_a_length_of_its_own(policy: Policy) -> None:
    prompts = [ids(1, 6), ids(2, 9), ids(3, 4)]
    whole = sample_answers(policy, prompts, 9, 0, temperature=0.0)
    each = sample_answers(policy, prompts, [2, 9, 5], 0, temperature=0.0)
    assert whole is not None and each is not None
    assert [a.ids for a in each] == [a.ids[:n] for a, n in zip(whole, [2, 9, 5], strict=True)]
    assert [len(a.logprobs) for a in each] == [len(a.ids) for a in each]


def test_the_random_state_of_the_process_stays(policy: Policy) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    sample_answers(policy, [ids(1, 4)], 4, seed=1)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_tick_that_raises_ends_it(policy: Policy) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sample_answers(policy, [ids(1, 4)], 4, seed=1, alive=stop)
