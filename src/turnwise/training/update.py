"""The course of an update: from a leased batch to a candidate version, step by step, so that a killed one goes on.

What it needs of weights and optimiser it asks of a backend; what it keeps are checkpoints.
"""

from __future__ import annotations

import logging
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
from turnwise.training.lessons.learning import PATIENCE, apart
from turnwise.training.publish import recent_checkpoints
from turnwise.training.scores import ScoreHistory
from turnwise.training.step import BadBatch, NotFinite, Tick, plan, sampler_gap
from turnwise.types import Batch, PolicyVersion, Sample

log = logging.getLogger(__name__)


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
    ) -> Candidate:
        """Run, or go on with, the update of a batch. ``tick`` may raise to stop it; a later call continues.

        ``probes`` are for the gate: turns that are never trained on.

        ``came_further`` is called after each checkpoint. Raises BadBatch, and AdapterError when the parent version
        cannot be gone on from.
        """
        backend = self.backend
        started = time.monotonic()
        parent = backend.prepare(batch.parent)
        origin = origin_of(batch, parent, self._config.train)
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
        self._learn_lessons(batch, metrics, dropped, origin, len(steps), tick, came_further)
        kept = [i for i, s in enumerate(batch.samples) if s.turn_id not in dropped]
        batch, signals = replace(batch, samples=[batch.samples[i] for i in kept]), [signals[i] for i in kept]
        result: dict[str, Any] = {"accepted": True, "reasons": [], "alpha": 1.0, "skipped": "gate.enabled is false"}
        if self._config.gate.enabled:
            result = backend.examine(batch, probes, tick)
        summary = summarise(metrics) | {"samples": float(len(batch.samples)), "seconds": time.monotonic() - started}
        scores = ScoreHistory.of(parent.get("metrics", {})).after([s.reward for s in batch.samples])
        summary |= scores.metrics()
        gap = sampler_gap(batch, signals)
        if gap is not None:
            summary["sampler_gap"] = gap
        weights, _ = backend.snapshot()
        return Candidate(weights, summary, result, self.checkpoints.name(batch.id, len(metrics)), dropped)

    def _learn_lessons(
        self,
        batch: Batch,
        metrics: list[dict[str, float]],
        dropped: dict[str, str],
        origin: str,
        before: int,
        tick: Tick,
        came_further: Callable[[], None],
    ) -> None:
        """Optimiser steps on lessons, behind the ``before`` steps on samples, until those set aside get no better.

        ``metrics`` has those of the steps that were made already, and gets those of the new ones.
        """
        taught = self.backend.lessons(batch, tick)
        if not taught:
            return
        learn, held = apart(taught)
        size = self._config.train.minibatch
        parts = -(-len(learn) // size)
        chunks = [learn[len(learn) * p // parts : len(learn) * (p + 1) // parts] for p in range(parts)]
        first = metrics[before]["lesson_before"] if len(metrics) > before else self.backend.lesson_loss(held, tick)
        least, in_vain = first, 0
        for i in range(self._config.train.lesson_passes):
            if in_vain == PATIENCE:
                return
            for c, chunk in enumerate(chunks):
                position = before + i * parts + c + 1
                if position <= len(metrics):
                    continue
                try:
                    measured = {"lesson": self.backend.learn(chunk, tick), "lesson_before": first}
                except NotFinite as e:  # no fault of the samples: what they taught stays
                    log.warning("batch %d: %s; the update goes on without the rest of them", batch.id, e)
                    return
                if c == parts - 1:
                    measured["lesson_after"] = self.backend.lesson_loss(held, tick)
                metrics.append(measured)
                self.checkpoints.save(
                    batch.id, Checkpoint(*self.backend.snapshot(), position, metrics, origin, dropped)
                )
                came_further()
            now = metrics[before + (i + 1) * parts - 1]["lesson_after"]
            least, in_vain = (now, 0) if now < least else (least, in_vain + 1)

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
    names = dict.fromkeys(name for step in steps for name in step)
    summary = {name: _mean([step[name] for step in steps if name in step]) for name in names}
    if after := [step["lesson_after"] for step in steps if "lesson_after" in step]:
        summary["lesson_after"] = after[-1]
    return summary | {"tokens": sum(step.get("tokens", 0.0) for step in steps), "optimiser_steps": float(len(steps))}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
