"""The training loop: lease a batch, update, checkpoint, gate, publish, and look for the next one.

It talks to the other loops through the journal and the version directories alone. Killed at any point, it finds the
same batch, parent and position again and goes on to the same weights. It never waits for the next batch before it
publishes, and never touches what is being served.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch
import transformers
from torch import Tensor

from turnwise.config import Config
from turnwise.errors import AdapterError, DiskFull, JournalUnavailable, LeaseLost
from turnwise.files import sweep
from turnwise.journal import Journal
from turnwise.loops.lifeline import beat
from turnwise.models import resolve_model
from turnwise.training import gate
from turnwise.training.checkpoints import Checkpoint, CheckpointStore, origin_of
from turnwise.training.policy import Policy
from turnwise.training.publish import (
    PublishedAdapter,
    clean_leftovers,
    load_adapter_dir,
    numbers_on_disk,
    recent_checkpoints,
    staged_version,
    version_dir,
)
from turnwise.training.step import (
    BadBatch,
    Tick,
    compute_signals,
    plan,
    sampler_gap,
    step_without_guilty,
    without_faults,
)
from turnwise.types import BASE_VERSION, Batch, Exclusion, PolicyVersion, Sample

log = logging.getLogger(__name__)

NICENESS = 10
"""Training must not take the processor from answers."""
POLL_S = 0.5
HEARTBEAT_S = 5.0
ROOM_S = 10.0
"""Between two tries to go on with a batch that a full disk stopped."""


class Stop(Protocol):
    """A `threading.Event` or an `asyncio.Event`."""

    def is_set(self) -> bool: ...


class Interrupted(Exception):
    """The loop was told to stop in the middle of an update."""


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
        self.policy = Policy(model, config.train)
        self._model = str(model)
        self.checkpoints = CheckpointStore(config.checkpoints_dir)
        sweep(config.versions_dir)

    def train(
        self, batch: Batch, probes: Sequence[Sample], tick: Tick, came_further: Callable[[], None] = lambda: None
    ) -> Candidate:
        """Run, or go on with, the update of a batch. ``tick`` may raise to stop it; a later call continues.

        ``came_further`` is called after each checkpoint. Raises BadBatch, and AdapterError when the parent version
        cannot be gone on from.
        """
        config, policy = self._config.train, self.policy
        started = time.monotonic()
        parent, optimizer = self._start_from(batch.parent)
        origin = origin_of(batch, parent.meta if parent else {})
        weights = parent.weights if parent else None
        policy.load(weights)
        batch, dropped = without_faults(batch, policy)
        signals = compute_signals(policy, batch, config, tick)
        steps = plan(batch, config)
        metrics: list[dict[str, float]] = []
        if done := self.checkpoints.latest(batch.id, origin):
            policy.load(done.adapter)
            optimizer.load_state_dict(done.optimizer)
            metrics, dropped = done.metrics, done.dropped
        for position, chosen in enumerate(steps[len(metrics) :], start=len(metrics) + 1):
            chosen = [i for i in chosen if batch.samples[i].turn_id not in dropped]
            if not chosen:
                raise BadBatch(f"batch {batch.id}: no sample of step {position} has a finite gradient")
            measured, guilty = step_without_guilty(policy, optimizer, batch, signals, chosen, config, tick)
            metrics.append(measured)
            dropped |= {batch.samples[i].turn_id: "its gradient is not finite" for i in guilty}
            state, left = policy.state(), optimizer.state_dict()
            self.checkpoints.save(batch.id, Checkpoint(state, left, position, metrics, origin, dropped))
            came_further()
        kept = [i for i, s in enumerate(batch.samples) if s.turn_id not in dropped]
        batch, signals = replace(batch, samples=[batch.samples[i] for i in kept]), [signals[i] for i in kept]
        result: dict[str, Any] = {"accepted": True, "reasons": [], "skipped": "gate.enabled is false"}
        if self._config.gate.enabled:
            measured = gate.measure(policy, weights, batch, signals, probes, config, tick)
            result = gate.decide(measured, self._config.gate)
        summary = summarise(metrics) | {"samples": float(len(batch.samples)), "seconds": time.monotonic() - started}
        gap = sampler_gap(batch, signals)
        if gap is not None:
            summary["sampler_gap"] = gap
        return Candidate(policy.state(), summary, result, self.checkpoints.name(batch.id, len(steps)), dropped)

    def fault_of(self, version: int) -> str | None:
        """Why no update can go on from a version, or None."""
        try:
            adapter, _ = self._start_from(version)
            self.policy.load(adapter.weights if adapter else None)
        except AdapterError as e:
            return str(e)
        return None

    def stage(self, version: PolicyVersion, candidate: Candidate) -> AbstractContextManager[Callable[[], None]]:
        """Write the candidate's directory, beside its place; what is given puts it there."""
        return staged_version(version, candidate.weights, self.policy.lora_config, candidate.checkpoint, self._model)

    def prune(self) -> None:
        """Delete the optimiser states that no recent version needs."""
        keep = self._config.train.keep_checkpoints
        self.checkpoints.keep_only(recent_checkpoints(self._config.versions_dir, keep))

    def _start_from(self, parent: int) -> tuple[PublishedAdapter | None, torch.optim.Optimizer]:
        """The parent's adapter (None for the base model) and an optimiser in the state it left."""
        config = self._config.train
        optimizer = torch.optim.AdamW(
            self.policy.parameters(), lr=config.lr, betas=(0.9, 0.98), weight_decay=config.weight_decay
        )
        if parent == BASE_VERSION:
            return None, optimizer
        adapter = load_adapter_dir(version_dir(self._config.versions_dir, parent))
        for setting, name in (("lora_rank", "r"), ("lora_alpha", "lora_alpha")):
            # Weights mean nothing without their scale, alpha / rank: under another one the same numbers are another
            # policy, and the optimiser's state is of yet another.
            was, now = adapter.lora.get(name), getattr(config, setting)
            if was != now:
                raise AdapterError(
                    f"version {parent} was trained with train.{setting} = {was}, the configuration says {now}; "
                    f"set train.{setting} back to {was}, or start in a new home"
                )
        left = self.checkpoints.load(str(adapter.meta.get("checkpoint")))
        if left is None:
            log.warning("the optimiser state of v%d is gone; the update starts with a fresh one", parent)
        else:
            optimizer.load_state_dict(left.optimizer)
            for group in optimizer.param_groups:  # the configuration, not the checkpoint, sets these
                group.update(lr=config.lr, weight_decay=config.weight_decay)
        return adapter, optimizer


def summarise(steps: Sequence[dict[str, float]]) -> dict[str, float]:
    """One set of metrics for an update: sums of tokens and steps, means of the rest."""
    summary = {name: sum(step[name] for step in steps) / len(steps) for name in steps[0]}
    return summary | {"tokens": sum(step["tokens"] for step in steps), "optimiser_steps": float(len(steps))}


def run(config: Config, stop: Stop) -> None:
    """Train until ``stop`` is set. Raises ModelError or JournalError when it cannot start."""
    os.nice(max(0, NICENESS - os.nice(0)))
    # Threads of one operation wait for each other: one that shares its core with the engine, at lower priority, holds
    # up all of them. Half of the cores do more work than all of them do.
    torch.set_num_threads(config.train.threads or max(1, (os.cpu_count() or 1) // 2))
    transformers.utils.logging.disable_progress_bar()
    journal = Journal.open(config)
    clean_leftovers(journal, config.versions_dir)
    trainer = Trainer(config, resolve_model(config.model.path))
    worker = f"trainer-{os.getpid()}"
    log.info("ready: %d threads, device %s", torch.get_num_threads(), trainer.policy.device)
    heartbeat, fault, closed = float("-inf"), None, ""
    while not stop.is_set():
        beat()
        try:
            batch = None if fault else journal.batches.claim(worker, config.train.lease_s)
            if batch is not None:
                fault = work(config, journal, trainer, batch, stop, journal.store.steady)
                heartbeat = float("-inf")
                continue
            if time.monotonic() - heartbeat >= HEARTBEAT_S:
                heartbeat, serving = time.monotonic(), journal.versions.latest()
                fault = fault and trainer.fault_of(serving)
                status = {"state": "blocked" if fault else "waiting", "version": serving, "error": fault}
                journal.status.say("trainer", status)
            closed = ""
        except JournalUnavailable as e:  # a full disk, a lock: nothing can be trained, and nothing is lost
            if str(e) != closed:
                log.warning("nothing can be trained: %s", e)
            closed = str(e)
        time.sleep(POLL_S)
    with suppress(JournalUnavailable):
        journal.status.say("trainer", {"state": "stopped"})


def work(
    config: Config, journal: Journal, trainer: Trainer, batch: Batch, stop: Stop, monotonic: Callable[[], float]
) -> str | None:
    """Bring one leased batch to its end: a version, a refusal, or back into the journal to be continued.

    `monotonic` gives seconds for the lease.

    Gives what stands in the way of every batch, where that is why this one came to nothing: its samples are ready
    again. Any other error is noted with the batch, which the next trainer takes up or gives up.
    """
    tick = _lease_keeper(config, journal, batch, stop, monotonic)
    log.info("batch %d: %d samples on top of v%d", batch.id, len(batch.samples), batch.parent)
    try:
        probes = journal.batches.gate_probes(config.gate.probes, [s.turn_id for s in batch.samples])
        candidate = trainer.train(batch, probes, tick, lambda: journal.batches.came_further(batch))
        if not candidate.gate["accepted"]:
            log.warning("batch %d: refused by the gate: %s", batch.id, "; ".join(candidate.gate["reasons"]))
            journal.batches.refuse(batch, candidate.gate, candidate.metrics)
            trainer.checkpoints.drop(batch.id)
            return None
        number = journal.batches.reserve_version(batch, max(numbers_on_disk(config.versions_dir), default=0))
        version = PolicyVersion(
            number=number,
            parent=batch.parent,
            path=str(version_dir(config.versions_dir, number)),
            created_at=journal.store.clock(),
            metrics=candidate.metrics,
            gate=candidate.gate,
            turn_ids=[s.turn_id for s in batch.samples if s.turn_id not in candidate.dropped],
        )
        tick("publishing", 0, 1)
        with trainer.stage(version, candidate) as put_in_place:
            tick("publishing", 1, 1)
            journal.batches.finish(batch, version, candidate.dropped, put_in_place)
        for reason in candidate.dropped.values():
            log.warning("batch %d: a turn was left out: %s", batch.id, reason)
        log.info("v%d serves: loss %.3f, %.1f s", number, candidate.metrics["loss"], candidate.metrics["seconds"])
        trainer.prune()
    except BadBatch as e:
        log.error("batch %d cannot be trained on: %s", batch.id, e)
        gate_result = {"accepted": False, "reasons": [str(e)]}
        journal.batches.refuse(batch, gate_result, {}, Exclusion.FAILED_IN_TRAINING)
        trainer.checkpoints.drop(batch.id)
    except AdapterError as e:
        log.error("nothing can be trained: %s", e)
        journal.batches.release(batch)
        return str(e)
    except Interrupted:
        journal.batches.suspend(batch)
        log.info("batch %d: stopped; the next start goes on with it", batch.id)
    except LeaseLost as e:
        log.warning("batch %d: %s; dropped", batch.id, e)
    except (DiskFull, JournalUnavailable) as e:
        log.error("batch %d waits: %s", batch.id, e)
        _suspend_when_possible(journal, batch, stop)
        with suppress(JournalUnavailable):
            journal.status.say("trainer", {"state": "blocked", "error": str(e)})
        _wait(stop, ROOM_S)
    except Exception as e:
        with suppress(LeaseLost, JournalUnavailable):
            journal.batches.failed(batch, f"{type(e).__name__}: {e}")
        raise
    return None


def _suspend_when_possible(journal: Journal, batch: Batch, stop: Stop) -> None:
    """Let go of a batch that only the disk stands in the way of. It counts as no attempt, however long that takes."""
    while True:
        try:
            journal.batches.suspend(batch)
        except LeaseLost:
            return
        except JournalUnavailable:
            if stop.is_set():
                return
            _wait(stop, POLL_S)
        else:
            return


def _wait(stop: Stop, seconds: float) -> None:
    until = time.monotonic() + seconds
    while not stop.is_set() and time.monotonic() < until:
        beat()
        time.sleep(min(POLL_S, seconds))


def _lease_keeper(config: Config, journal: Journal, batch: Batch, stop: Stop, monotonic: Callable[[], float]) -> Tick:
    """A tick that stops the update when told to, keeps the lease, and says in the journal how far it is."""
    lease_s = config.train.lease_s
    renewed = monotonic()
    shown: tuple[str, float] = ("", float("-inf"))

    def tick(phase: str, done: int, total: int) -> None:
        nonlocal renewed, shown
        beat()
        if stop.is_set():
            raise Interrupted
        now = monotonic()
        if now - renewed >= lease_s / 4:
            journal.batches.renew(batch, lease_s)
            renewed = now
        if phase != shown[0] or now - shown[1] >= 1.0:
            shown = (phase, now)
            journal.status.say(
                "trainer",
                {"state": phase, "batch": batch.id, "samples": len(batch.samples), "done": done, "total": total},
            )

    return tick
