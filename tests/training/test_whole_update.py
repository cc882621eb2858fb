"""A whole update against a naive one: mini-batches, epochs, clipping and AdamW, with plain autograd, in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.training.homes import Bench, feed, settings
from tests.training.naive import ByHand, Naive, mixed, of_lessons
from tests.training.tiny import batch, ids, no_tick, sample, shake
from turnwise.config import Config
from turnwise.training.backends.local import LocalBackend
from turnwise.training.lessons.learning import with_base
from turnwise.training.lessons.making import Lesson
from turnwise.training.policy import Policy
from turnwise.training.scores import ScoreHistory
from turnwise.training.step import plan
from turnwise.types import Sample

LR, DECAY = 3e-3, 0.1


def some_turns() -> list[Sample]:
    """Confidences that are no whole numbers, and temperatures that float32 has exactly."""
    shares = [0.75, 1.0, 0.875, 1.0, 0.9375, 1.0]
    turns = [replace(s, reward=s.reward * share) for s, share in zip(mixed(), shares, strict=True)]
    return [replace(s, temperature=0.75 if s.temperature == 0.7 else s.temperature) for s in [*turns, sample(8)]]


def in_double(config: Config, tiny_dir: Path) -> tuple[LocalBackend, Policy]:
    """A backend and a policy beside it, both in float64 and with the same adapter."""
    backend = LocalBackend(config, tiny_dir)
    backend.prepare(0)
    reference = Policy(tiny_dir, config.train)
    for policy in (backend.policy, reference):
        policy.model.double()
        shake(policy)
    return backend, reference


@pytest.mark.parametrize(("estimator", "clip"), [("exact", 8.0), ("sampled", 1.0)])
def test_an_update_equals_the_naive_one(tmp_path: Path, tiny_dir: Path, estimator: str, clip: float) -> None:
    given = {"estimator": estimator, "lr": LR, "weight_decay": DECAY, "grad_clip": clip, "minibatch": 3, "epochs": 3}
    config = settings(tmp_path, tiny_dir, **{f"train.{name}": value for name, value in given.items()})
    data = batch(some_turns())
    backend, reference = in_double(config, tiny_dir)
    started = reference.state()

    signals = backend.signals(data, no_tick)
    steps = plan(data, config.train)
    metrics = [backend.step(data, signals, chosen, no_tick)[0] for chosen in steps]

    naive, by_hand = Naive(reference, data.samples, config.train), ByHand(reference, config.train)
    norms = []
    for chosen in steps:
        loss, gradient = naive.gradient(chosen)
        teaching = sum(bool(naive.advantage[i].any()) or (i in naive.teacher) for i in chosen)
        norms.append(by_hand.step(gradient, math.sqrt(teaching / 3)))
        assert metrics[len(norms) - 1]["loss"] == pytest.approx(loss, abs=1e-6)
    assert [m["grad_norm"] for m in metrics] == pytest.approx(norms, rel=1e-6)
    assert min(norms) < clip < max(norms), "some were cut, and some were not"
    assert len({m["step_scale"] for m in metrics}) > 1

    found, expected = backend.policy.state(), reference.state()
    assert max(float((expected[name] - started[name]).abs().max()) for name in started) > 5e-3
    assert max(float((expected[name] - found[name]).abs().max()) for name in started) < 1e-6


def some_lessons() -> list[Lesson]:
    """Answers of several lengths with words that were wished for, one of them the plain answer behind such words."""
    answers = [ids(3 * n + 2, 5 + n % 3) for n in range(4)]
    wished = [[at in (1, len(a) - 1) for at in range(len(a))] for a in answers]
    lessons = [Lesson(ids(3 * n, 9), a, w) for n, (a, w) in enumerate(zip(answers, wished, strict=True))]
    plain = ids(31, 6)
    opened = Lesson(ids(30, 8), [*ids(32, 3), *plain], [True] * 3 + [False] * 5 + [True], plain, kept=5)
    return [*lessons, opened]


def test_an_update_with_lessons_equals_the_naive_one(tmp_path: Path, tiny_dir: Path) -> None:
    """Steps on samples, and then those on lessons, with one optimiser; of lessons some are fewer than a minibatch."""
    given = {"lr": LR, "weight_decay": DECAY, "grad_clip": 1.0, "minibatch": 3, "epochs": 1}
    config = settings(tmp_path, tiny_dir, **{f"train.{name}": value for name, value in given.items()})
    data = batch(some_turns())
    backend, reference = in_double(config, tiny_dir)
    started = reference.state()
    naive, by_hand = Naive(reference, data.samples, config.train), ByHand(reference, config.train)

    signals = backend.signals(data, no_tick)
    for chosen in plan(data, config.train):
        backend.step(data, signals, chosen, no_tick)
        teaching = sum(bool(naive.advantage[i].any()) or (i in naive.teacher) for i in chosen)
        by_hand.step(naive.gradient(chosen)[1], math.sqrt(teaching / 3))
    backend._of_turns = 3  # as many turns as a full step has
    every = some_lessons()
    for part in (every[:3], every[3:], every):
        taught = with_base(backend.policy, part, config.train.microbatch_tokens, no_tick)
        loss, gradient = of_lessons(reference, part)
        by_hand.step(gradient, math.sqrt(min(len(part), 3) / 3))
        assert backend.learn(taught, no_tick) == pytest.approx(loss, abs=1e-6)

    found, expected = backend.policy.state(), reference.state()
    assert max(float((expected[name] - started[name]).abs().max()) for name in started) > 5e-3
    assert max(float((expected[name] - found[name]).abs().max()) for name in started) < 1e-6


def test_scores_are_measured_from_those_that_the_parents_were_trained_on(make: Callable[..., Bench]) -> None:
    bench = make()
    feed(bench.journal, range(8))
    assert bench.claim_and_work() and bench.claim_and_work()
    first, second = bench.journal.versions.get(1), bench.journal.versions.get(2)
    assert first is not None and second is not None
    assert ScoreHistory.of(first.metrics) == ScoreHistory(0.0, 4.0)  # turns 0 to 3: two of each
    assert ScoreHistory.of(second.metrics) == ScoreHistory(0.0, 8.0)

    backend = LocalBackend(bench.config, Path(bench.config.model.path))
    data = batch([sample(1, hint=None), sample(3, hint=None)], parent=2)
    backend.prepare(2)
    advantages = [float(s.advantage[0]) for s in backend.signals(data, no_tick)]
    assert advantages == pytest.approx([1 - 1 / 17] * 2)
    backend.prepare(0)
    advantages = [float(s.advantage[0]) for s in backend.signals(data, no_tick)]
    assert advantages == pytest.approx([1 - 1 / 9] * 2), "the base model was trained on none"
