"""The course of an update: from a leased batch to a candidate version.

What it needs of weights and optimiser it asks of a backend. It is a function of batch, parent and configuration, so
that one that was killed is done again, to the same weights (docs/decisions/0016).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from turnwise.config import Config, recipes
from turnwise.errors import AdapterError, ServerLost
from turnwise.files import remove, sweep
from turnwise.training.backends.base import Backend
from turnwise.training.backends.choice import backend_of
from turnwise.training.lessons.learning import PATIENCE, PATIENT_STEPS, Taught, apart
from turnwise.training.publish import keep_moments
from turnwise.training.scores import ScoreHistory
from turnwise.training.step import BadBatch, NotFinite, Tick, plan, sampler_gap
from turnwise.types import PERSONAL, Batch, PolicyVersion, Sample

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Candidate:
    """The outcome of an update whose weights are in the backend: what they cost, and whether they may serve.

    ``dropped`` are the turns of the batch that were not trained on, with the reason of each.
    """

    metrics: dict[str, float]
    gate: dict[str, Any]
    dropped: dict[str, str]


class Trainer:
    """Turns batches into candidates. All state it needs stands in the versions folder."""

    def __init__(self, config: Config, model: Path | str) -> None:
        self._config = config
        self.backend: Backend = backend_of(config, model)
        sweep(config.versions_dir)
        remove(config.home / "checkpoints")  # of a home that had one after each optimiser step; nothing reads them

    def train(self, batch: Batch, probes: Sequence[Sample], tick: Tick) -> Candidate:
        """Run the update of a batch. ``tick`` may raise to stop it; a later call begins anew.

        ``probes`` are for the gate: turns that are never trained on. Raises BadBatch, and AdapterError when the parent
        version cannot be gone on from.
        """
        backend = self.backend
        started = time.monotonic()
        parent = backend.prepare(batch.parent)
        how = recipes(self._config.train, self._config.streams)
        batch, dropped = backend.without_faults(batch)
        signals = backend.signals(batch, tick)
        steps = plan(batch, self._config.train, how)
        metrics: list[dict[str, float]] = []
        for position, chosen in enumerate(steps, start=1):
            chosen = [i for i in chosen if batch.samples[i].turn_id not in dropped]
            if not chosen:
                raise BadBatch(f"batch {batch.id}: no sample of step {position} has a finite gradient")
            measured, guilty = backend.step(batch, signals, chosen, tick)
            metrics.append(measured)
            dropped |= {batch.samples[i].turn_id: "its gradient is not finite" for i in guilty}
        self._learn_lessons(batch, metrics, tick)
        kept = [i for i, s in enumerate(batch.samples) if s.turn_id not in dropped]
        batch, signals = replace(batch, samples=[batch.samples[i] for i in kept]), [signals[i] for i in kept]
        result: dict[str, Any] = {"accepted": True, "reasons": [], "alpha": 1.0, "skipped": "gate.enabled is false"}
        if self._config.gate.enabled:
            result = backend.examine(batch, probes, tick)
        if result["accepted"] and any("lesson" in step for step in metrics):
            result["wishes"] = backend.wishes_kept(batch, tick)
        summary = summarise(metrics) | {"samples": float(len(batch.samples)), "seconds": time.monotonic() - started}
        scores = ScoreHistory.of(parent.get("metrics", {})).after(
            [s.reward for s in batch.samples if s.stream == PERSONAL]
        )
        summary |= scores.metrics()
        gap = sampler_gap(batch, signals)
        if gap is not None:
            summary["sampler_gap"] = gap
        return Candidate(summary, result, dropped)

    def _learn_lessons(self, batch: Batch, metrics: list[dict[str, float]], tick: Tick) -> None:
        """Optimiser steps on lessons, behind those on samples, until the ones set aside get no better.

        ``metrics`` gets those of the steps. Where the ones set aside are no better learned in the end, all these steps
        are taken back: what lessons teach beside their own words wears out what was learned before.
        """
        taught = self.backend.lessons(batch, tick)
        if not taught:
            return
        before, steps_before = self.backend.snapshot(), len(metrics)
        self._in_passes(batch, taught, metrics, tick)
        after = [step["lesson_after"] for step in metrics[steps_before:] if "lesson_after" in step]
        if after and not after[-1] < metrics[-1]["lesson_before"]:
            self.backend.restore(*before)
            metrics[-1]["lessons_undone"] = 1.0
            log.info(
                "batch %d: the lessons set aside were learned no better; the steps on lessons are undone", batch.id
            )

    def _in_passes(self, batch: Batch, taught: Sequence[Taught], metrics: list[dict[str, float]], tick: Tick) -> None:
        learn, held = apart(taught)
        size = self._config.train.minibatch
        parts = -(-len(learn) // size)
        chunks = [learn[len(learn) * p // parts : len(learn) * (p + 1) // parts] for p in range(parts)]
        first = self.backend.lesson_loss(held, tick)
        least, in_vain = first, 0
        for _ in range(self._config.train.lesson_passes):
            if in_vain >= PATIENCE and in_vain * parts >= PATIENT_STEPS:
                return
            for c, chunk in enumerate(chunks):
                try:
                    measured = {"lesson": self.backend.learn(chunk, tick), "lesson_before": first}
                except NotFinite as e:  # no fault of the samples: what they taught stays
                    log.warning("batch %d: %s; the update goes on without the rest of them", batch.id, e)
                    if "lesson" in (metrics[-1] if metrics else {}):
                        metrics[-1]["lesson_after"] = self.backend.lesson_loss(held, tick)
                    return
                if c == parts - 1:
                    measured["lesson_after"] = self.backend.lesson_loss(held, tick)
                metrics.append(measured)
            now = metrics[-1]["lesson_after"]
            least, in_vain = (now, 0) if now < least else (least, in_vain + 1)

    def fault_of(self, version: int) -> str | None:
        """Why no update can go on from a version, or None."""
        try:
            self.backend.prepare(version)
        except (AdapterError, ServerLost) as e:
            return str(e)
        return None

    def stage(self, version: PolicyVersion) -> AbstractContextManager[Callable[[], None]]:
        """Write the directory of the candidate that was made last, beside its place; what is given puts it there."""
        return self.backend.stage(version)

    def prune(self) -> None:
        """Delete the optimiser states that no recent version needs."""
        keep_moments(self._config.versions_dir, self._config.train.keep_checkpoints)


def summarise(steps: Sequence[dict[str, float]]) -> dict[str, float]:
    """One set of metrics for an update: sums of tokens and steps, means of the rest."""
    names = dict.fromkeys(name for step in steps for name in step)
    summary = {name: _mean([step[name] for step in steps if name in step]) for name in names}
    if after := [step["lesson_after"] for step in steps if "lesson_after" in step]:
        summary["lesson_after"] = after[-1]
    return summary | {"tokens": sum(step.get("tokens", 0.0) for step in steps), "optimiser_steps": float(len(steps))}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
