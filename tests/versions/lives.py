"""Lives of a home with a tiny model: batches that are learned one after the other, and a session that is forgotten."""

from __future__ import annotations

import threading
from pathlib import Path

import torch
from torch import Tensor

from tests.training.homes import Bench, feed, set_aside
from turnwise.training.publish import version_dir
from turnwise.training.update import Trainer
from turnwise.training.weights.files import load_version_dir
from turnwise.training.worker import work
from turnwise.versions.rebuilding.forgetting import forget_and_rebuild

GONE = "session-5"
"""Of the second batch: the first version does not know it, the second and third do."""
BATCHES = (range(4), range(4, 8), range(8, 12))


def live(bench: Bench, without: set[int] = frozenset(), probes: bool = False) -> None:  # type: ignore[assignment]
    """A home's life: batches are judged and learned, one after the other; ``without`` are sessions that never were."""
    for numbers in BATCHES:
        if probes:  # sessions that are set aside come in all the time
            aside = [n for n in range(100 + numbers.start, 104 + numbers.start) if n not in without]
            for n in aside:
                feed(bench.journal, range(n, n + 1))
                set_aside(bench.journal, f"turn-{n}")
        for n in numbers:
            if n not in without:
                feed(bench.journal, range(n, n + 1))
        trainer = Trainer(bench.config, Path(bench.config.model.path))
        batch = bench.journal.batches.claim("trainer", 60, at_once=True)
        assert batch is not None
        work(bench.config, bench.journal, trainer, batch, bench.stop, bench.clock)


def forget(bench: Bench, session: str = GONE, stop: threading.Event | None = None) -> list[str]:
    said: list[str] = []
    forget_and_rebuild(bench.config, bench.journal, session, False, stop or threading.Event(), said.append)
    return said


def serving(bench: Bench) -> dict[str, Tensor]:
    return load_version_dir(version_dir(bench.config.versions_dir, bench.journal.versions.latest())).weights


def close(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.allclose(a[name], b[name], atol=1e-7, rtol=1e-5) for name in a)
