"""Several streams in one update: each one's part of the gradient is that of its own update, whatever is beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.training.stepping import assert_close
from tests.training.tiny import batch, no_tick, sample, shake, train_config
from turnwise.config import Recipe
from turnwise.training.batching import Row
from turnwise.training.policy import Policy
from turnwise.training.step import compute_signals, optimiser_step, plan, step_scale
from turnwise.types import Sample, TaskGroup

PLAIN = {"hint": None, "hint_at": None}


def recipe(method: str = "grpo", **changes: Any) -> Recipe:
    fields = {"method": method, "aggregation": "trajectory-sum", "beta_kl": 0.05, "epochs": 1, "minibatch": 8}
    return Recipe(**(fields | changes))


RECIPES = {
    "web": recipe(),
    "terminal": recipe("step_groups", aggregation="trajectory-mean", beta_kl=0.0, weight=0.5),
}


def rollouts(stream: str, first: int, outcomes: Sequence[float], steps: int = 2, group: str = "g") -> list[Sample]:
    """A group with a trajectory for each outcome; the n-th has one step less where n is odd."""
    of = TaskGroup(f"{stream}-{group}", tuple(outcomes))
    made = []
    for i, outcome in enumerate(outcomes):
        for step in range(steps - i % 2):
            named = {"session_id": f"{stream}-{group}-{i}", "stream": stream, "group": of, "step": step}
            made.append(
                sample(first + 10 * i + step, turn_id=f"{stream}-{group}-{i}-{step}", reward=outcome, **named, **PLAIN)
            )
    return made


PERSON = [sample(n, hint=None if n % 2 else f"shorter ({n})") for n in range(3)]
WEB = [*rollouts("web", 20, [1.0, 0.0, 0.0]), *rollouts("web", 60, [0.5, 0.5], group="constant")]
TERMINAL = rollouts("terminal", 120, [1.0, -1.0, 0.5], steps=3)


def gradient(
    folder: Path, samples: list[Sample], recipes: dict[str, Recipe] | None = None, **settings: Any
) -> tuple[list[Tensor], dict[str, float]]:
    """The gradient of one optimiser step over all samples, and its metrics. The policy is not the base model, so that
    every term has one."""
    config = train_config(**({"grad_clip": 1e9} | settings))
    policy = Policy(folder, config)
    shake(policy)
    data = batch(samples)
    signals = compute_signals(policy, data, config, no_tick, recipes=RECIPES if recipes is None else recipes)
    shake(policy, seed=4, size=0.06)  # so that ratios are not 1
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.0)
    metrics = optimiser_step(policy, optimizer, data, signals, range(len(samples)), config, no_tick)
    return [p.grad.clone() for p in policy.parameters() if p.grad is not None], metrics


@pytest.mark.parametrize("tokens", [64, 4096], ids=["many micro-batches", "one"])
@pytest.mark.parametrize("chunk", [3, 128])
def test_each_streams_part_of_the_gradient_is_that_of_its_own_update(
    tiny_dir: Path, monkeypatch: pytest.MonkeyPatch, tokens: int, chunk: int
) -> None:
    """The samples of three streams with three methods stand in one step, and in one row where they share words."""
    monkeypatch.setattr("turnwise.training.terms.HEAD_CHUNK", chunk)
    mixed = [one for some in zip(PERSON, WEB, TERMINAL, strict=False) for one in some]
    mixed += [one for one in (*WEB, *TERMINAL) if one not in mixed]
    together, metrics = gradient(tiny_dir, mixed, microbatch_tokens=tokens)
    apart = [gradient(tiny_dir, some, microbatch_tokens=tokens) for some in (PERSON, WEB, TERMINAL)]
    assert_close([sum(parts, torch.zeros(())) for parts in zip(*(g for g, _ in apart), strict=True)], together, 1e-5)
    assert metrics["loss"] == pytest.approx(sum(m["loss"] for _, m in apart), rel=1e-5)
    assert metrics["pg"] == pytest.approx(sum(m["pg"] for _, m in apart), rel=1e-5)
    assert metrics["web_pg"] == pytest.approx(apart[1][1]["pg"], rel=1e-5)
    assert all(g[0].abs().max() > 0 for g, _ in apart)


def test_a_stream_weighs_as_much_as_its_weight_says(tiny_dir: Path) -> None:
    plain, _ = gradient(tiny_dir, WEB, {"web": recipe()})
    heavy, _ = gradient(tiny_dir, WEB, {"web": recipe(weight=3.0)})
    assert_close([3 * g for g in plain], heavy, 1e-5)


def test_a_constant_group_dilutes_nothing_but_its_kl(tiny_dir: Path) -> None:
    alone = [one for one in WEB if one.group and not one.group.id.endswith("constant")]
    without, _ = gradient(tiny_dir, alone, {"web": recipe(beta_kl=0.0)})
    beside, _ = gradient(tiny_dir, WEB, {"web": recipe(beta_kl=0.0)})
    assert_close(without, beside, 1e-5)


def read_texts(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Which sample of which pass is read by the model, from now on: `base`, `policy`, or `trained`."""
    read: list[tuple[str, int]] = []
    hidden, reference, of_base = Policy.hidden, Policy.reference, [False]

    def seen(self: Policy, rows: Sequence[Row], recompute: bool = False) -> Tensor:
        which = "base" if of_base[0] else "trained" if torch.is_grad_enabled() else "policy"
        read.extend((which, span.sample) for row in rows for span in row.spans)
        return hidden(self, rows, recompute)

    @contextmanager
    def as_base(self: Policy) -> Iterator[None]:
        of_base[0] = True
        with reference(self):
            yield
        of_base[0] = False

    monkeypatch.setattr(Policy, "hidden", seen)
    monkeypatch.setattr(Policy, "reference", as_base)
    return read


def test_without_a_kl_nothing_is_read_under_the_base_model_and_what_teaches_nothing_is_not_trained_on(
    tiny_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = read_texts(monkeypatch)
    gradient(tiny_dir, WEB, {"web": recipe(beta_kl=0.0)})
    teaching = [i for i, one in enumerate(WEB) if one.group and not one.group.id.endswith("constant")]
    assert set(read) == {*(("policy", i) for i in range(len(WEB))), *(("trained", i) for i in teaching)}
    read.clear()
    gradient(tiny_dir, WEB, {"web": recipe(beta_kl=0.1)})
    assert set(read) == {(which, i) for which in ("policy", "base", "trained") for i in range(len(WEB))}


def test_a_step_of_which_nothing_teaches_has_no_gradient(tiny_dir: Path) -> None:
    constant = [one for one in WEB if one.group and one.group.id.endswith("constant")]
    found, metrics = gradient(tiny_dir, constant, {"web": recipe(beta_kl=0.0)})
    assert all(not part.any() for part in found)
    assert metrics["pg"] == 0 and metrics["kl"] == 0 and metrics["tokens"] > 0


def by_hand(folder: Path, samples: list[Sample], advantages: dict[str, float], averaged: str) -> list[Tensor]:
    """The gradient of the plain formula at ratio 1, a sequence at a time through the model."""
    config = train_config()
    policy = Policy(folder, config)
    shake(policy)
    rollouts = dict.fromkeys(s.session_id for s in samples)
    total = torch.zeros(())
    for rollout in rollouts:
        turns = [s for s in samples if s.session_id == rollout]
        for one in turns:
            ids = torch.tensor([one.prompt_ids + one.response_ids])
            logits = policy.model(input_ids=ids).logits[0, len(one.prompt_ids) - 1 : -1]
            table = (logits / one.temperature).log_softmax(-1)
            logp = torch.stack([table[k, y] for k, y in enumerate(one.response_ids)])
            steps = len(turns) if averaged == "trajectory-mean" else 1
            total = total - advantages[rollout] * logp.mean() / steps / len(rollouts)
    return list(torch.autograd.grad(total, policy.parameters()))


@pytest.mark.parametrize("averaged", ["trajectory-sum", "trajectory-mean"])
def test_a_group_moves_the_weights_as_the_formula_says(tiny_dir: Path, averaged: Any) -> None:
    samples = rollouts("web", 20, [1.0, 0.0, 0.25], steps=3)
    config = train_config(grad_clip=1e9)
    policy = Policy(tiny_dir, config)
    shake(policy)
    how = {"web": recipe(aggregation=averaged, beta_kl=0.0)}
    signals = compute_signals(policy, batch(samples), config, no_tick, recipes=how)
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.0)
    optimiser_step(policy, optimizer, batch(samples), signals, range(len(samples)), config, no_tick)
    found = [p.grad.clone() for p in policy.parameters() if p.grad is not None]
    outcomes = torch.tensor([1.0, 0.0, 0.25])
    scaled = (outcomes - outcomes.mean()) / (outcomes.std() + 1e-6)
    expected = by_hand(tiny_dir, samples, {f"web-g-{i}": float(a) for i, a in enumerate(scaled)}, averaged)
    assert_close(expected, found, 1e-4)


@pytest.mark.parametrize(("outcome", "sign"), [(1.0, 1), (0.0, -1)])
def test_what_won_becomes_likelier_and_what_lost_less(tiny_dir: Path, outcome: float, sign: int) -> None:
    group = TaskGroup("g", (1.0, 0.0))
    one = sample(20, stream="web", group=group, step=0, reward=outcome, **PLAIN)
    config = train_config(lr=1e-3)
    policy = Policy(tiny_dir, config)
    how = {"web": recipe(beta_kl=0.0)}
    before = compute_signals(policy, batch([one]), config, no_tick, recipes=how)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=config.lr)
    optimiser_step(policy, optimizer, batch([one]), before, [0], config, no_tick)
    after = compute_signals(policy, batch([one]), config, no_tick, recipes=how)
    assert sign * (after[0].old - before[0].old).sum().item() > 0


# -- steps ----------------------------------------------------------------------------------------------------------


def names(samples: list[Sample], steps: list[list[int]]) -> list[set[str]]:
    return [{samples[i].turn_id for i in step} for step in steps]


def test_a_step_has_the_part_of_each_stream_that_it_would_have_alone() -> None:
    config = train_config(minibatch=2, seed=3)
    how = {"web": recipe(minibatch=1, epochs=2)}
    everything = [*WEB[:2], *PERSON, *WEB[2:]]
    alone = [names(some, plan(batch(some), config, how)) for some in (PERSON, WEB)]
    assert [len(steps) for steps in alone] == [2, 4]
    together = names(everything, plan(batch(everything), config, how))
    alone[0] += [set(), set()]  # the second pass is the web's alone
    assert together == [a | b for a, b in zip(*alone, strict=True)]


def test_a_group_stands_in_one_step() -> None:
    config = train_config(minibatch=1)
    samples = [one for i in range(5) for one in rollouts("web", 20 * i, [1.0, 0.0], group=f"g{i}")]
    steps = plan(batch(samples), config, {"web": recipe(minibatch=2)})
    assert sorted(i for step in steps for i in step) == list(range(len(samples)))
    groups = [{samples[i].group for i in step} for step in steps]
    assert [len(some) for some in groups] == [1, 2, 2] and len(set().union(*groups)) == 5


def test_how_far_a_step_goes_is_said_by_the_fullest_stream(tiny_dir: Path) -> None:
    config = train_config(minibatch=16)
    policy = Policy(tiny_dir, config)
    how = {"web": recipe(minibatch=4)}
    everything = [PERSON[0], *WEB]
    signals = compute_signals(policy, batch(everything), config, no_tick, recipes=how)
    assert step_scale(signals, [0], config) == pytest.approx(0.25)
    assert step_scale(signals, range(len(everything)), config) == pytest.approx(0.5), "one of four groups teaches"
