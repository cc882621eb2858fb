"""The training loop: lease a batch, update, gate, publish, and look for the next one.

It talks to the other loops through the journal and the version directories alone. Killed at any point, it finds the
same batch and parent again and comes to the same weights. It never waits for the next batch before it
publishes, and never touches what is being served. Between two micro-batches it stands still while the person is there.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Protocol

import torch
import transformers

from turnwise.config import Config
from turnwise.errors import AdapterError, DiskFull, JournalUnavailable, LeaseLost, ServerLost
from turnwise.journal.deletion.retention import prune_versions
from turnwise.journal.journal import Journal
from turnwise.journal.queue.refusals import wall
from turnwise.loops.lifeline import beat
from turnwise.loops.memory import give_back
from turnwise.models.architectures import supported_model
from turnwise.training.lease import KeptLease
from turnwise.training.leave import Leave
from turnwise.training.publish import clean_leftovers, held_dir, numbers_on_disk, version_dir
from turnwise.training.step import BadBatch, Tick
from turnwise.training.update import Candidate, Trainer
from turnwise.types import Batch, Exclusion, PolicyVersion

log = logging.getLogger(__name__)

NICENESS = 10
"""Training must not take the processor from answers."""
POLL_S = 0.5
HEARTBEAT_S = 5.0
PUBLISHING = "publishing"
STAND_S = 0.2
"""Between two looks whether a batch that stands may go on."""
ROOM_S = 10.0
"""Between two tries to go on with a batch that a full disk stopped, or a server that is down."""


class Stop(Protocol):
    """A `threading.Event` or an `asyncio.Event`."""

    def is_set(self) -> bool: ...


class Interrupted(Exception):
    """The loop was told to stop in the middle of an update."""


def run(config: Config, stop: Stop, leave: Leave | None = None) -> None:
    """Train until ``stop`` is set. Raises ModelError, ConfigError or JournalError when it cannot start."""
    os.nice(max(0, NICENESS - os.nice(0)))
    torch.set_num_threads(config.train.cpu_threads(alone=config.train.when == "idle"))
    transformers.utils.logging.disable_progress_bar()
    journal = Journal.open(config)
    leave = leave or Leave(config, journal)
    clean_leftovers(journal, config.versions_dir)
    trainer = Trainer(config, supported_model(config.model.path))
    worker = f"trainer-{os.getpid()}"
    log.info("ready: %d threads, device %s", torch.get_num_threads(), trainer.backend.device)
    heartbeat, fault, closed = float("-inf"), None, ""
    while not stop.is_set():
        beat()
        try:
            shut = leave.why_not(due=False, stopped=True)
            batch = None if fault or shut else journal.batches.claim(worker, config.train.lease_s, leave.asked)
            if batch is not None:
                fault = work(config, journal, trainer, batch, stop, journal.store.steady, leave)
                give_back()
                heartbeat = float("-inf")
                continue
            if leave.asked and not journal.batches.any_open():
                leave.done(_outcome(journal, fault))
            if time.monotonic() - heartbeat >= HEARTBEAT_S:
                heartbeat, serving = time.monotonic(), journal.versions.latest()
                fault = fault and trainer.fault_of(serving)
                why = None if fault else journal.batches.waits_for() or shut
                status = {"state": "blocked" if fault else "waiting", "version": serving, "error": fault, "for": why}
                status |= {"when": config.train.when}
                journal.status.say("trainer", status)
            closed = ""
        except JournalUnavailable as e:  # a full disk, a lock: nothing can be trained, and nothing is lost
            if str(e) != closed:
                log.warning("nothing can be trained: %s", e)
            closed = str(e)
        time.sleep(POLL_S)
    leave.close()
    trainer.backend.close()
    with suppress(JournalUnavailable):
        journal.status.say("trainer", {"state": "stopped"})


def _outcome(journal: Journal, fault: str | None) -> str:
    """What to tell a person who asked for training, when there is nothing left to train."""
    if fault or (fault := journal.batches.waits_for()):
        return f"nothing can be trained: {fault}"
    if refused := journal.batches.refused_in_a_row()["count"]:
        return f"the gate refused the last {refused} batches, so version {journal.versions.latest()} still serves"
    return f"version {journal.versions.latest()} serves, and no sample that teaches something waits"


def work(
    config: Config,
    journal: Journal,
    trainer: Trainer,
    batch: Batch,
    stop: Stop,
    monotonic: Callable[[], float],
    leave: Leave | None = None,
) -> str | None:
    """Bring one leased batch to its end: a version, a refusal, or back into the journal to be continued.

    `monotonic` gives seconds for the lease. Without a `leave` it never stands still.

    Gives what stands in the way of every batch, where that is why this one came to nothing: its samples are ready
    again. Any other error is noted with the batch, which the next trainer takes up or gives up.
    """
    tick = _lease_keeper(config, journal, batch, stop, monotonic, leave)
    stood_before = leave.stood_s if leave else 0.0
    log.info("batch %d: %d samples on top of v%d", batch.id, len(batch.samples), batch.parent)
    try:
        probes = journal.batches.gate_probes(config.gate.probes, [s.turn_id for s in batch.samples])
        journal.updates.keep(batch, [s.turn_id for s in probes])
        with KeptLease(journal, batch, config.train.lease_s) as kept:
            candidate = trainer.train(batch, probes, kept.told_by(tick))
        if not candidate.gate["accepted"]:
            _refuse(journal, batch, candidate)
            if config.train.weights == "lora":  # a whole model is too large to be kept in case somebody wants it
                _hold(config, journal, trainer, batch, candidate)
            return None
        candidate.metrics["seconds"] -= leave.stood_s - stood_before if leave else 0.0
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
        tick(PUBLISHING, 0, 1)
        with ExitStack() as staged:
            with KeptLease(journal, batch, config.train.lease_s):  # a whole model takes a slow disk minutes
                put_in_place = staged.enter_context(trainer.stage(version))
            tick(PUBLISHING, 1, 1)
            journal.batches.finish(batch, version, candidate.dropped, put_in_place)
        for reason in candidate.dropped.values():
            log.warning("batch %d: a turn was left out: %s", batch.id, reason)
        log.info("v%d serves: loss %.3f, %.1f s", number, candidate.metrics["loss"], candidate.metrics["seconds"])
        if whole := candidate.gate.get("whole"):
            part, why = candidate.gate["alpha"], "; ".join(whole["reasons"])
            log.warning("v%d is %g of its step: the whole did not pass the gate: %s", number, part, why)
        trainer.prune()
        if config.keep_versions:
            prune_versions(journal, config.keep_versions)
    except BadBatch as e:
        log.error("batch %d cannot be trained on: %s", batch.id, e)
        gate_result = {"accepted": False, "reasons": [str(e)]}
        journal.batches.refuse(batch, gate_result, {}, Exclusion.FAILED_IN_TRAINING)
    except AdapterError as e:
        log.error("nothing can be trained: %s", e)
        journal.batches.release(batch)
        return str(e)
    except Interrupted:
        journal.batches.suspend(batch)
        log.info("batch %d: stopped; the next start goes on with it", batch.id)
    except LeaseLost as e:
        log.warning("batch %d: %s; dropped", batch.id, e)
    except (DiskFull, JournalUnavailable, ServerLost) as e:
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


def _refuse(journal: Journal, batch: Batch, candidate: Candidate) -> None:
    """Give the samples of a refused batch back, and say so: loudly when that was not the first time."""
    log.warning(
        "batch %d: refused by the gate, its samples go back: %s", batch.id, "; ".join(candidate.gate["reasons"])
    )
    journal.batches.refuse(batch, candidate.gate, candidate.metrics, dropped=candidate.dropped)
    if stands_in_the_way := wall(journal.batches.refused_in_a_row()):
        log.error("%s", stands_in_the_way)


def _hold(config: Config, journal: Journal, trainer: Trainer, batch: Batch, candidate: Candidate) -> None:
    """Keep what the gate refused, in place of what it refused before: a person may look at it, and decide otherwise."""
    turns = [s.turn_id for s in batch.samples if s.turn_id not in candidate.dropped]
    path, gate = str(held_dir(config.versions_dir)), candidate.gate | {"batch": batch.id}
    held = PolicyVersion(0, batch.parent, path, journal.store.clock(), candidate.metrics, gate, turns)
    with trainer.stage(held) as put_in_place:
        put_in_place()


def _suspend_when_possible(journal: Journal, batch: Batch, stop: Stop) -> None:
    """Let go of a batch that only a disk or a server stands in the way of. It counts as no attempt, however long it
    takes."""
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


def _stand(journal: Journal, batch: Batch, stop: Stop, leave: Leave, keep_lease: Callable[[], None]) -> bool:
    """Stand still for as long as there is no leave to train; whether it did. All that is computed stays in memory.

    Raises Interrupted, and LeaseLost where the batch was overtaken meanwhile.
    """
    if (why := leave.why_not(due=True, stopped=False)) is None:
        return False
    log.info("batch %d stands: %s", batch.id, why)
    began, said, said_at = time.monotonic(), "", float("-inf")
    while why is not None:
        beat()
        if stop.is_set():
            raise Interrupted
        keep_lease()
        if (said != why and time.monotonic() - said_at >= 1.0) or time.monotonic() - said_at >= HEARTBEAT_S:
            said, said_at = why, time.monotonic()
            status = {"state": "paused", "batch": batch.id, "samples": len(batch.samples), "for": why}
            journal.status.say("trainer", status)
        time.sleep(STAND_S)
        why = leave.why_not(due=True, stopped=True)
    leave.stood_s += time.monotonic() - began
    log.info("batch %d goes on after %.0f s", batch.id, time.monotonic() - began)
    return True


def _lease_keeper(
    config: Config,
    journal: Journal,
    batch: Batch,
    stop: Stop,
    monotonic: Callable[[], float],
    leave: Leave | None = None,
) -> Tick:
    """A tick that stops the update when told to, stands still without leave, keeps the lease, and says in the journal
    how far it is."""
    lease_s = config.train.lease_s
    renewed = monotonic()
    shown: tuple[str, float] = ("", float("-inf"))

    def keep_lease(at_once: bool = False) -> None:
        nonlocal renewed
        if at_once or monotonic() - renewed >= lease_s / 4:
            renewed = monotonic()
            journal.batches.renew(batch, lease_s)

    def tick(phase: str, done: int, total: int) -> None:
        nonlocal shown
        beat()
        if stop.is_set():
            raise Interrupted
        # What is computed is published without a wait. What was overtaken while it stood is dropped before it goes on.
        stood = leave is not None and phase != PUBLISHING and _stand(journal, batch, stop, leave, keep_lease)
        keep_lease(at_once=stood)
        now = monotonic()
        if phase != shown[0] or now - shown[1] >= 1.0:
            shown = (phase, now)
            journal.status.say(
                "trainer",
                {"state": phase, "batch": batch.id, "samples": len(batch.samples), "done": done, "total": total},
            )

    return tick
