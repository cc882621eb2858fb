"""Golden numbers for what scores and hints mean to each algorithm (docs/training.md, "Signals"); the page's example."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import turnwise.training.algorithms
from tests.training.homes import Bench, feed
from tests.training.tiny import sample, train_config
from turnwise.methods import METHODS, Method
from turnwise.training.algorithms.base import Seen, algorithm_of
from turnwise.training.algorithms.opd import distillation, subtract_mean


def seen(reward: float, old: list[float], teacher: list[float] | None = None) -> Seen:
    read = None if teacher is None else lambda: torch.tensor(teacher)
    return Seen(sample(1, reward=reward), torch.tensor(old), read)


def advantages(batch: list[Seen], **settings: Any) -> list[list[float]]:
    algorithm = algorithm_of(train_config(**settings))
    return [a.tolist() for a in algorithm.group(batch, [algorithm.advantage(one) for one in batch])]


def test_every_method_is_a_file_and_every_file_a_method() -> None:
    files = {file.stem for file in Path(turnwise.training.algorithms.__path__[0]).glob("*.py")}
    assert files - {"__init__", "base"} == METHODS.keys()


@pytest.mark.parametrize("method", METHODS)
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


def test_the_baseline_is_the_mean_over_all_tokens_of_the_batch() -> None:
    first, second = subtract_mean([torch.tensor([-1.0, -2.0, -3.0]), torch.tensor([2.0])])
    assert first.tolist() == [0.0, -1.0, -2.0]  # the mean is -1
    assert second.tolist() == [3.0]


def test_the_baseline_of_nothing_is_nothing() -> None:
    assert subtract_mean([]) == []


def test_combined_adds_both_terms_with_their_weights() -> None:
    batch = [seen(-1.0, [0.0, 0.0], [0.5, -0.25]), seen(0.0, [0.0], [-0.25])]  # the mean of the hinted tokens is 0
    got = advantages(batch, estimator="sampled", w_binary=0.5, w_opd=2.0)
    assert got == [[0.5, -1.0], [-0.5]]


@pytest.mark.parametrize("reward", [1.0, 0.0, -1.0])
@pytest.mark.parametrize("estimator", ["exact", "sampled"])
def test_without_a_hint_the_distillation_term_is_exactly_zero(reward: float, estimator: str) -> None:
    hinted = seen(1.0, [0.0], [5.0])
    assert advantages([seen(reward, [-1.0, -2.0]), hinted], estimator=estimator)[0] == [reward, reward]


def test_a_teacher_is_asked_for_log_probs_only_where_the_estimator_needs_them() -> None:
    def refuse() -> Tensor:
        raise AssertionError

    one = Seen(sample(1), torch.zeros(2), refuse)
    for settings in ({"method": "binary"}, {"method": "opd"}, {"method": "combined", "estimator": "topk"}):
        algorithm = algorithm_of(train_config(**settings))
        algorithm.group([one], [algorithm.advantage(one)])


def test_the_pages_example_is_an_algorithm_once_its_file_and_its_line_are_there(
    make: Callable[..., Bench], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")
    blocks = page.split("## An algorithm in one file")[1].split("```python")[1:3]
    code, line = (block.split("```", 1)[0] for block in blocks)
    (tmp_path / "centred.py").write_text(code, encoding="utf-8")
    folder = turnwise.training.algorithms
    monkeypatch.setattr(folder, "__path__", [*folder.__path__, str(tmp_path)])
    for name, method in eval(line, {"Method": Method}).items():
        monkeypatch.setitem(METHODS, name, method)

    scores = [seen(-1.0, [0.0]), seen(-1.0, [0.0]), seen(1.0, [0.0, 0.0])]
    assert advantages(scores, method="centred") == [[-1.0], [-1.0], [1.0, 1.0]]  # as many good tokens as bad ones
    assert advantages(scores[:2], method="centred") == [[0.0], [0.0]]
    bench = make(**{"train.method": "centred"})
    feed(bench.journal, range(4))
    assert bench.claim_and_work()
    published = bench.journal.versions.get(1)
    assert published is not None
    assert published.metrics["grad_norm"] > 0
    assert published.metrics["opd"] == 0, "it learns from no hints"
