"""Rollouts beside verl, in float64: GRPO, step-index groups, dynamic sampling and both averages over trajectories.

`make test-references` runs this in an environment of its own that has it; elsewhere it is skipped.
"""

from __future__ import annotations

import importlib.util
import sys
from collections import defaultdict
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy
import pytest
import torch
from torch import Tensor

verl = pytest.importorskip("verl.trainer.ppo.core_algos", reason="see `make test-references`")

from turnwise.sampling import has_spread, step_reward  # noqa: E402
from turnwise.training import losses  # noqa: E402
from turnwise.training.algorithms.grpo import against_its_group  # noqa: E402
from turnwise.training.algorithms.step_groups import by_step  # noqa: E402

CLOSE = 1e-6
OUTCOMES = {
    "wins and losses": [1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0],
    "of one": [0.7],
    "of one that failed": [-1.0],
    "constant": [0.25] * 5,
    "all zero": [0.0] * 4,
    "nearly constant": [0.5, 0.5, 0.5 + 1e-7],
    "far apart": [1e5, -1e5, 3.0],
    "graded": [0.1, 0.35, 0.2, 0.9, 0.35],
}


def grpo_of_verl(rewards: list[float], groups: list[str], **settings: bool) -> list[float]:
    """The advantage of answers of three tokens, the second of which is masked."""
    mask = torch.tensor([[1.0, 0.0, 1.0]], dtype=torch.float64).repeat(len(rewards), 1)
    scores = torch.zeros_like(mask)
    scores[:, 2] = torch.tensor(rewards, dtype=torch.float64)
    found, _ = verl.compute_grpo_outcome_advantage(scores, mask, numpy.array(groups), epsilon=1e-6, **settings)
    assert (found[:, 1] == 0).all()
    return found[:, 0].tolist()


@pytest.mark.parametrize("name", OUTCOMES)
def test_grpo_over_trajectories_equals_verls(name: str) -> None:
    group = OUTCOMES[name]
    found = [against_its_group(o, group) for o in group]
    assert found == pytest.approx(grpo_of_verl(group, ["a"] * len(group)), abs=CLOSE, rel=CLOSE)


def test_grpo_of_many_groups_in_one_batch_equals_verls() -> None:
    """In an order that mixes them."""
    places = [(name, o) for name, group in OUTCOMES.items() for o in group]
    mixed = [places[i] for i in torch.randperm(len(places), generator=torch.Generator().manual_seed(5)).tolist()]
    found = [against_its_group(o, OUTCOMES[name]) for name, o in mixed]
    expected = grpo_of_verl([o for _, o in mixed], [name for name, _ in mixed])
    assert found == pytest.approx(expected, abs=CLOSE, rel=CLOSE)


STEPS = [
    # rollout, outcome, the votes on each of its steps; the last has none
    ("w", 1.0, [[1, 1, -1], [0, 1, 1], []]),
    ("x", 0.0, [[-1, -1, -1], []]),
    ("y", 0.0, [[1, 1, 1], [1, 0, -1], [1, 1, 1], []]),  # alone with its fourth step
    ("z", 0.5, [[]]),
]


@pytest.mark.parametrize("task", ["all", "alone", "alike"])
def test_step_groups_equal_verls_mean_and_numpys_deviation(task: str) -> None:
    """verl's own deviation divides by n - 1, the paper's by n: the reward less the mean is verl's, the rest numpy's."""
    rollouts = {"all": STEPS, "alone": STEPS[:1], "alike": [("u", 0.5, [[], []]), ("v", 0.5, [[], []])]}[task]
    steps = [(o, votes, t) for _, o, of in rollouts for t, votes in enumerate(of)]
    rewards = [o + (float(numpy.mean(votes)) if votes else 0.0) for o, votes, _ in steps]
    assert [step_reward("step_groups", o, votes) for o, votes, _ in steps] == pytest.approx(rewards, abs=1e-12)
    names = [str(t) for _, _, t in steps]
    groups: dict[str, list[float]] = defaultdict(list)
    for name, reward in zip(names, rewards, strict=True):
        groups[name].append(reward)
    centred = grpo_of_verl(rewards, names, norm_adv_by_std_in_grpo=False)
    deviation = [numpy.std(groups[name]) + 1e-6 if len(groups[name]) > 1 else 1.0 for name in names]
    expected = [c / d for c, d in zip(centred, deviation, strict=True)]
    assert by_step(rewards, names) == pytest.approx(expected, abs=CLOSE, rel=CLOSE)


def dropped_by_verl(monkeypatch: pytest.MonkeyPatch, groups: dict[str, list[float]]) -> set[str]:
    """`_dapo_filtered_keys` of its replay buffer on these finished groups; what it asks of a buffer stands in for one,
    and its store for rollouts, which is a service, gives them out."""
    rollouts = {f"{name}_{i}": reward for name, rewards in groups.items() for i, reward in enumerate(rewards)}
    store = ModuleType("transfer_queue")
    store.KVBatchMeta = object  # type: ignore[attr-defined]
    store.kv_batch_get = lambda keys, **_: {  # type: ignore[attr-defined]
        "rm_scores": [torch.tensor([0.0, rollouts[key]], dtype=torch.float64) for key in keys]
    }
    monkeypatch.setitem(sys.modules, "transfer_queue", store)
    # The file alone: what stands beside it in its folder asks for a whole cluster's libraries.
    file = Path(verl.__file__).parent / "v1/replay_buffer.py"
    spec = importlib.util.spec_from_file_location("replay_buffer", file)
    assert spec is not None
    assert spec.loader is not None
    buffer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(buffer)
    held = SimpleNamespace(
        filter_groups_metric="reward",
        finished_keys={"train": set(groups)},
        partitions={"train": {key: {} for key in rollouts}},
        _dapo_classification_cache=defaultdict(dict),
    )
    return buffer.ReplayBuffer._dapo_filtered_keys(held, "train")[0]


def test_dynamic_sampling_drops_the_groups_that_verl_drops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups of one are kept; a group of none is not ready at either."""
    groups = {name.replace(" ", "-"): rewards for name, rewards in OUTCOMES.items()}
    dropped = {name for name, rewards in groups.items() if not has_spread(rewards)}
    assert dropped == dropped_by_verl(monkeypatch, groups) == {"constant", "all-zero"}


TURNS = [(7, "a1", "a"), (1, "a1", "a"), (4, "a2", "a"), (0, "a2", "a"), (12, "b1", "b"), (3, "b2", "b"),
         (2, "b2", "b"), (0, "b3", "b"), (0, "c1", "c"), (5, "d1", "d")]  # fmt: skip
"""Tokens, rollout, group: a masked turn, a masked rollout, a masked group, a group of one."""


def of_verl(per_token: Tensor, mask: Tensor, mean: bool) -> Tensor:
    """Each group by verl's mean over turns: of a rollout's turns, or of all turns for as many as there are rollouts."""
    totals = []
    for group in dict.fromkeys(g for n, _, g in TURNS if n):
        rollouts = dict.fromkeys(i for n, i, g in TURNS if n and g == group)
        rows = {i: [r for r, (_, j, _) in enumerate(TURNS) if i == j] for i in rollouts}
        if mean:
            each = [verl.agg_loss(per_token[r], mask[r], "seq-mean-token-mean") for r in rows.values()]
            totals.append(torch.stack(each).mean())
        else:
            every = [r for some in rows.values() for r in some]
            mode, size = "seq-mean-token-mean", len(rollouts)
            totals.append(verl.agg_loss(per_token[every], mask[every], mode, global_batch_size=size))
    return torch.stack(totals).mean()


@pytest.mark.parametrize("aggregation", ["trajectory-sum", "trajectory-mean"])
@pytest.mark.parametrize("seed", range(4))
def test_both_averages_over_trajectories_equal_verls(seed: int, aggregation: losses.Aggregation) -> None:
    g = torch.Generator().manual_seed(seed)
    by = torch.randn(len(TURNS), 12, generator=g, dtype=torch.float64, requires_grad=True)
    lengths, rollouts, groups = zip(*TURNS, strict=True)
    mask = (torch.arange(12) < torch.tensor(lengths).unsqueeze(1)).double()
    weights = losses.turn_weights(lengths, aggregation, rollouts, groups)
    found = torch.stack([w * by[i, :n].sum() for i, (w, n) in enumerate(zip(weights, lengths, strict=True))]).sum()
    expected = of_verl(by, mask, aggregation == "trajectory-mean")
    assert found.item() == pytest.approx(expected.item(), abs=CLOSE)
    one, other = (torch.autograd.grad(loss, by, retain_graph=True)[0] for loss in (found, expected))
    assert (one - other).abs().max().item() < CLOSE
