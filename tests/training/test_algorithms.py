"""Golden numbers for what scores and hints mean to each algorithm (docs/training.md, "Signals"); the page's example."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import turnwise.training.algorithms
from tests.training.homes import Bench, feed
from tests.training.tiny import sample, train_config
from turnwise.methods import METHODS, OF_TURNS, Method
from turnwise.training.algorithms.base import Seen, algorithm_of
from turnwise.training.algorithms.opd import distillation, less_others
from turnwise.training.scores import PRIOR, WINDOW, ScoreHistory, centred


def seen(reward: float, old: list[float], teacher: list[float] | None = None) -> Seen:
    read = None if teacher is None else lambda: torch.tensor(teacher)
    return Seen(sample(1, reward=reward), torch.tensor(old), read)


def advantages(batch: list[Seen], **settings: Any) -> list[list[float]]:
    algorithm = algorithm_of(train_config(**settings))
    return [a.tolist() for a in algorithm.group(batch, [algorithm.advantage(one) for one in batch])]


def test_every_method_is_a_file_and_every_file_a_method() -> None:
    files = {file.stem for file in Path(turnwise.training.algorithms.__path__[0]).glob("*.py")}
    assert files - {"__init__", "base"} == METHODS.keys()


@pytest.mark.parametrize("method", OF_TURNS)
def test_an_algorithm_uses_the_signals_that_the_table_says(method: str) -> None:
    """What the journal keeps for it: a score moves it if it learns from scores, a hint if it does from hints."""
    learns = METHODS[method]
    scored, hinted = seen(1.0, [-1.0, -2.0]), seen(0.0, [-1.0, -2.0], [-3.0, -1.0])
    settings = {"method": method, "estimator": "sampled"}
    assert advantages([scored], **settings) == [[float(learns.scores)] * 2]
    assert (advantages([hinted], **settings) != [[0.0, 0.0]]) == learns.hints
    extra = algorithm_of(train_config(method=method)).extra_loss()
    assert (extra is not None) == learns.hints


def test_the_score_is_given_to_every_response_token() -> None:
    assert advantages([seen(-1.0, [-0.1, -0.2, -0.3])], method="binary") == [[-1.0, -1.0, -1.0]]


def test_distillation_is_the_log_ratio_of_teacher_and_old() -> None:
    teacher = torch.tensor([-1.0, -0.25, -3.0])
    old = torch.tensor([-0.5, -1.25, -3.0])
    assert distillation(teacher, old).tolist() == [-0.5, 1.0, 0.0]


def test_distillation_carries_no_gradient() -> None:
    teacher = torch.tensor([-1.0], requires_grad=True)
    assert not distillation(teacher, torch.tensor([-2.0])).requires_grad


def test_the_baseline_is_the_mean_over_the_tokens_of_the_other_turns() -> None:
    terms = [torch.tensor([-1.0, -2.0, -3.0]), torch.tensor([2.0]), torch.tensor([0.0, 1.0])]
    first, second, third = less_others(terms, limit=100.0)
    assert first.tolist() == [-2.0, -3.0, -4.0]  # the others: (2 + 0 + 1) / 3
    assert second.tolist() == [3.0]  # (-6 + 1) / 5
    assert third.tolist() == [1.0, 2.0]  # (-6 + 2) / 4


def test_a_turn_alone_has_no_baseline() -> None:
    assert less_others([torch.tensor([-1.0, 0.5])], limit=2.0)[0].tolist() == [-1.0, 0.5]


def test_the_baseline_of_nothing_is_nothing() -> None:
    assert less_others([], limit=2.0) == []


def test_the_baseline_leaves_the_expected_gradient_as_it_is() -> None:
    """All 27 batches of three one-token answers over three words, each as likely as the policy makes it."""
    policy, teacher = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64), torch.tensor([0.1, 0.6, 0.3]).double()
    gap = teacher.log() - policy.log()
    score = torch.eye(3, dtype=torch.float64) - policy  # row j: the gradient of log p(j) by the logits
    expected = policy @ (gap.unsqueeze(-1) * score)

    found = torch.zeros(3, dtype=torch.float64)
    for words in itertools.product(range(3), repeat=3):
        likely = math.prod(float(policy[w]) for w in words)
        terms = less_others([gap[w].view(1) for w in words], limit=1e9)
        found += likely * sum(float(a) * score[w] for a, w in zip(terms, words, strict=True)) / 3
    assert torch.allclose(found, expected, atol=1e-12)


def test_a_sampled_advantage_is_cut_at_the_limit_both_ways() -> None:
    batch = [seen(0.0, [0.0, 0.0], [-30.0, 0.5]), seen(0.0, [0.0], [9.0])]
    got = advantages(batch, estimator="sampled", advantage_clip=1.5)
    assert got == [[-1.5, -1.5], [1.5]]
    assert advantages(batch, estimator="sampled", advantage_clip=1.5, w_opd=2.0)[1] == [3.0], "cut before it is weighed"


# -- scores beside each other ---------------------------------------------------------------------------------------


def test_a_score_is_measured_from_the_mean_of_the_others_and_eight_verdicts_of_zero() -> None:
    assert PRIOR == 8
    got = centred([-1.0, -1.0, -1.0, 1.0], ScoreHistory())
    assert got == pytest.approx([-1 + 1 / 11, -1 + 1 / 11, -1 + 1 / 11, 1 + 3 / 11])


def test_a_score_alone_is_taken_as_it_is_and_beside_a_history_measured_from_it() -> None:
    assert centred([-1.0], ScoreHistory()) == [-1.0]
    assert centred([-1.0, 0.0], ScoreHistory(-24.0, 32.0)) == pytest.approx([-1 + 24 / 40, 0.0])
    assert centred([1.0], ScoreHistory(-24.0, 32.0)) == pytest.approx([1 + 24 / 40])


def test_a_verdict_weighs_by_its_confidence_in_its_own_term_and_in_the_baseline() -> None:
    sure, unsure = centred([0.99, -0.7], ScoreHistory())
    assert sure == pytest.approx(0.99 * (1 + 0.7 / 8.7))
    assert unsure == pytest.approx(0.7 * (-1 - 0.99 / 8.99))


def test_skewed_verdicts_come_to_weigh_the_same_on_both_sides() -> None:
    history, batch = ScoreHistory(), [-1.0] * 6 + [1.0] * 2
    for _ in range(20):
        history = history.after(batch)
    assert (history.total, history.weight) == pytest.approx((-WINDOW / 2, WINDOW))
    got = centred(batch, history)
    assert abs(sum(got)) < 0.12 * sum(map(abs, got)), "taken as they are it would be half"
    assert sum(batch) == -0.5 * sum(map(abs, batch))


some_rewards = st.lists(st.just(0.0) | st.floats(0.01, 1) | st.floats(-1, -0.01), min_size=1, max_size=12)


@settings(deadline=None)
@given(some_rewards, st.floats(-1, 1), st.floats(0, WINDOW))
def test_praise_stays_praise_and_blame_blame(rewards: list[float], mean: float, weight: float) -> None:
    got = centred(rewards, ScoreHistory(mean * weight, weight))
    for reward, kept in zip(rewards, got, strict=True):
        assert (kept > 0) == (reward > 0) and (kept < 0) == (reward < 0)
        assert abs(kept) <= 2 * abs(reward) + 1e-12


def test_a_history_goes_on_from_what_a_version_recorded() -> None:
    first = ScoreHistory().after([1.0, -0.5, 0.0])
    assert first == ScoreHistory(0.5, 1.5) == ScoreHistory.of(first.metrics() | {"loss": 3.0})
    assert ScoreHistory.of({}) == ScoreHistory()
    assert ScoreHistory().after([0.0]) == ScoreHistory(), "a batch without a score"
    full = first.after([-1.0] * 100)
    assert (full.total, full.weight) == pytest.approx((-99.5 * WINDOW / 101.5, WINDOW))


def test_the_binary_term_uses_the_history_it_is_given() -> None:
    algorithm = algorithm_of(train_config(method="binary", w_binary=0.5), ScoreHistory(-24.0, 32.0))
    batch = [seen(-1.0, [0.0, 0.0]), seen(0.0, [0.0])]
    got = algorithm.group(batch, [algorithm.advantage(one) for one in batch])
    assert [a.tolist() for a in got] == [pytest.approx([-0.2, -0.2]), [0.0]]


# -- both together --------------------------------------------------------------------------------------------------


def test_the_loss_of_a_hint_is_the_divergence_that_is_configured_with_its_weight() -> None:
    student, teacher = (torch.tensor([row], dtype=torch.float64).log() for row in ([0.7, 0.1, 0.2], [0.2, 0.5, 0.3]))

    def found(**settings: Any) -> float:
        extra = algorithm_of(train_config(method="opd", w_opd=0.25, **settings)).extra_loss()
        assert extra is not None and extra.weight == 0.25
        return float(extra.per_position(student, teacher))

    log = math.log
    reverse = 0.7 * log(0.7 / 0.2) + 0.1 * log(0.1 / 0.5) + 0.2 * log(0.2 / 0.3)
    forward = 0.2 * log(0.2 / 0.7) + 0.5 * log(0.5 / 0.1) + 0.3 * log(0.3 / 0.2)
    assert found() == pytest.approx(reverse)
    assert found(divergence="forward") == pytest.approx(forward)
    folded = 0.1 * log(0.1 / 0.5) + 0.9 * log(0.9 / 0.5)
    assert found(estimator="topk", top_k=1) == pytest.approx(folded)
    assert algorithm_of(train_config(method="opd", estimator="sampled")).extra_loss() is None


def test_combined_adds_both_terms_with_their_weights() -> None:
    batch = [seen(-1.0, [0.0, 0.0], [0.5, -0.25]), seen(0.0, [0.0], [-0.25])]
    got = advantages(batch, estimator="sampled", w_binary=0.5, w_opd=2.0)
    assert got == [[-0.5 + 2 * 0.75, -0.5 + 2 * 0.0], [2 * -0.375]]  # the others' means are -0.25 and 0.125


@pytest.mark.parametrize("reward", [1.0, 0.0, -1.0])
@pytest.mark.parametrize("estimator", ["exact", "sampled"])
def test_without_a_hint_the_distillation_term_is_exactly_zero(reward: float, estimator: str) -> None:
    hinted = seen(1.0, [0.0], [5.0])
    alone = reward * (1 - reward / 9)  # beside one praised turn and eight verdicts of 0
    found = advantages([seen(reward, [-1.0, -2.0]), hinted], estimator=estimator)[0]
    assert found == pytest.approx([alone, alone]) and bool(any(found)) == bool(reward)


def test_a_teacher_is_asked_for_log_probs_only_where_the_estimator_needs_them() -> None:
    def refuse() -> Tensor:
        raise AssertionError

    one = Seen(sample(1), torch.zeros(2), refuse)
    for chosen in ({"method": "binary"}, {"method": "opd"}, {"method": "combined", "estimator": "topk"}):
        algorithm = algorithm_of(train_config(**chosen))
        algorithm.group([one], [algorithm.advantage(one)])


def test_the_pages_example_is_an_algorithm_once_its_file_and_its_line_are_there(
    make: Callable[..., Bench], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")
    blocks = page.split("## An algorithm in one file")[1].split("```python")[1:3]
    code, line = (block.split("```", 1)[0] for block in blocks)
    (tmp_path / "praised.py").write_text(code, encoding="utf-8")
    folder = turnwise.training.algorithms
    monkeypatch.setattr(folder, "__path__", [*folder.__path__, str(tmp_path)])
    for name, method in eval(line, {"Method": Method}).items():
        monkeypatch.setitem(METHODS, name, method)

    scores = [seen(-1.0, [0.0]), seen(-1.0, [0.0]), seen(1.0, [0.0, 0.0])]
    assert advantages(scores, method="praised") == [[0.0], [0.0], [1.0, 1.0]]
    bench = make(**{"train.method": "praised"})
    feed(bench.journal, range(4))
    assert bench.claim_and_work()
    published = bench.journal.versions.get(1)
    assert published is not None
    assert published.metrics["grad_norm"] > 0
    assert published.metrics["opd"] == 0, "it learns from no hints"
