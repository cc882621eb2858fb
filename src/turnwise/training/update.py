"""The course of an update: from a leased batch to a candidate version, step by step, so that a killed one goes on.

What it needs of weights and optimiser it asks of a backend; what it keeps are checkpoints.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from turnwise.config import Config
from turnwise.errors import AdapterError
from turnwise.files import sweep
from turnwise.training.backends.base import Backend
from turnwise.training.backends.local import LocalBackend
from turnwise.training.checkpoints import Checkpoint, CheckpointStore, origin_of
from turnwise.training.publish import recent_checkpoints
from turnwise.training.step import BadBatch, Tick, plan, sampler_gap
from turnwise.types import Batch, PolicyVersion, Sample


@dataclass(frozen=True, slots=True)
class Candidate:
    """The outcome of an update: weights, what they cost, whether they may serve, and the optimiser's checkpoint.

    ``dropped`` are the turns of the batch that were not trained on, with the reason of each.
    """

    weights: dict[str, Tensor]
    metrics: dict[str, float]
    gate: dict[str, Any]
    checkpoint: str
    dropped: dict[str, str]


class Trainer:
    """Turns batches into candidates. All state it needs stands in the versions and checkpoints folders."""

    def __init__(self, config: Config, model: Path | str) -> None:
        self._config = config
        self.checkpoints = CheckpointStore(config.checkpoints_dir)
        self.backend: Backend = LocalBackend(config, model, self.checkpoints)
        sweep(config.versions_dir)

    def train(
        self,
        batch: Batch,
        probes: Sequence[Sample],
        tick: Tick,
        came_further: Callable[[], None] = lambda: None,
        hints: Sequence[str] = (),
    ) -> Candidate:
        """Run, or go on with, the update of a batch. ``tick`` may raise to stop it; a later call continues.

        ``probes`` and ``hints`` are for the gate: turns that are never trained on, and what versions so far were told.

        ``came_further`` is called after each checkpoint. Raises BadBatch, and AdapterError when the parent version
        cannot be gone on from.
        """
        backend = self.backend
        started = time.monotonic()
        origin = origin_of(batch, backend.prepare(batch.parent))
        batch, dropped = backend.without_faults(batch)
        signals = backend.signals(batch, tick)
        steps = plan(batch, self._config.train)
        metrics: list[dict[str, float]] = []
        if done := self.checkpoints.latest(batch.id, origin):
            backend.restore(done.adapter, done.optimizer)
            metrics, dropped = done.metrics, done.dropped
        for position, chosen in enumerate(steps[len(metrics) :], start=len(metrics) + 1):
            chosen = [i for i in chosen if batch.samples[i].turn_id not in dropped]
            if not chosen:
                raise BadBatch(f"batch {batch.id}: no sample of step {position} has a finite gradient")
            measured, guilty = backend.step(batch, signals, chosen, tick)
            metrics.append(measured)
            dropped |= {batch.samples[i].turn_id: "its gradient is not finite" for i in guilty}
            self.checkpoints.save(batch.id, Checkpoint(*backend.snapshot(), position, metrics, origin, dropped))
            came_further()
        kept = [i for i, s in enumerate(batch.samples) if s.turn_id not in dropped]
        batch, signals = replace(batch, samples=[batch.samples[i] for i in kept]), [signals[i] for i in kept]
        result: dict[str, Any] = {"accepted": True, "reasons": [], "alpha": 1.0, "skipped": "gate.enabled is false"}
        if self._config.gate.enabled:
            result = backend.examine(batch, probes, hints, tick)
        summary = summarise(metrics) | {"samples": float(len(batch.samples)), "seconds": time.monotonic() - started}
        gap = sampler_gap(batch, signals)
        if gap is not None:
            summary["sampler_gap"] = gap
        weights, _ = backend.snapshot()
        return Candidate(weights, summary, result, self.checkpoints.name(batch.id, len(steps)), dropped)

    def fault_of(self, version: int) -> str | None:
        """Why no update can go on from a version, or None."""
        try:
            self.backend.prepare(version)
        except AdapterError as e:
            return str(e)
        return None

    def stage(self, version: PolicyVersion, candidate: Candidate) -> AbstractContextManager[Callable[[], None]]:
        """Write the candidate's directory, beside its place; what is given puts it there."""
        return self.backend.stage(version, candidate.weights, candidate.checkpoint)

    def prune(self) -> None:
        """Delete the optimiser states that no recent version needs."""
        keep = self._config.train.keep_checkpoints
        self.checkpoints.keep_only(recent_checkpoints(self._config.versions_dir, keep))


def summarise(steps: Sequence[dict[str, float]]) -> dict[str, float]:
    """One set of metrics for an update: sums of tokens and steps, means of the rest."""
    summary = {name: sum(step[name] for step in steps) / len(steps) for name in steps[0]}
    return summary | {"tokens": sum(step["tokens"] for step in steps), "optimiser_steps": float(len(steps))}
