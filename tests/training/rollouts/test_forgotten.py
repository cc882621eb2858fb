"""`turnwise forget --retrain` of a rollout: the weights are those of a group that never had it."""

from __future__ import annotations

import threading
from pathlib import Path

import torch

from tests.training.homes import Bench
from tests.training.rollouts.test_whole_update import bench, play
from turnwise.training.publish import version_dir
from turnwise.training.weights.files import load_version_dir
from turnwise.versions.rebuilding.forgetting import forget_and_rebuild


def serving(one: Bench) -> dict[str, torch.Tensor]:
    return load_version_dir(version_dir(one.config.versions_dir, one.journal.versions.latest())).weights


def close(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.allclose(a[name], b[name], atol=1e-7, rtol=1e-5) for name in a)


def test_a_group_is_rebuilt_as_if_it_never_had_the_forgotten_rollout(tmp_path: Path, tiny_dir: Path) -> None:
    """Its outcome is in the mean of the others no more, and the stream's settings are those of then."""
    then = {"streams.web.groups": 1, "streams.web.beta_kl": 0.3, "streams.web.weight": 2.0}
    had, never = bench(tmp_path / "had", tiny_dir, **then), bench(tmp_path / "never", tiny_dir, **then)
    play(had.journal, "x", [1.0, 0.0, 0.5], 20)
    play(never.journal, "x", [1.0, 0.0], 20)
    assert had.claim_and_work() and never.claim_and_work()
    before = serving(had)
    now = had.config.model_copy(update={"streams": type(had.config.streams)()})
    forget_and_rebuild(now, had.journal, "x-2", False, threading.Event(), lambda _: None)
    assert had.journal.versions.latest() == 2
    assert close(serving(had), serving(never))
    assert not close(serving(had), before)
