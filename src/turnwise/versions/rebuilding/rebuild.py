"""Does the updates of a line of versions again, without what was forgotten, and puts the results in their place.

Each update reads what it read then (`journal.queue.inputs`), is shuffled as it was then, and stands on the version that
was rebuilt before it: so the weights are those of a run of these batches that never had the forgotten turns in them.
It holds the trainer's place meanwhile. Nothing of it serves before all of it is done.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
import transformers

from turnwise.config import Config
from turnwise.errors import JournalUnavailable, LeaseLost, TurnwiseError
from turnwise.journal import Journal
from turnwise.journal.deletion.retention import delete_pruned
from turnwise.journal.queue.batches import REBUILDING
from turnwise.journal.queue.inputs import UpdateInputs
from turnwise.journal.queue.rebuilt import RebuildNote, RebuiltUpdate
from turnwise.models.architectures import supported_model
from turnwise.pictures.store import PictureStore
from turnwise.training.publish import numbers_on_disk, version_dir
from turnwise.training.step import BadBatch, Tick
from turnwise.training.update import Trainer
from turnwise.training.worker import Stop
from turnwise.types import BASE_VERSION, Batch, PolicyVersion
from turnwise.versions.rebuilding.plan import RebuildPlan, as_it_was, plan_rebuild
from turnwise.versions.rebuilding.workspace import DoneUpdate, Workspace

log = logging.getLogger(__name__)

Say = Callable[[str], None]


class RebuildStopped(TurnwiseError):
    """It was told to stop; the same command goes on."""


@contextmanager
def rebuilding_place(config: Config, journal: Journal, session: str) -> Iterator[tuple[Workspace, Batch]]:
    """The workspace and the trainer's place, for as long as a session is forgotten and versions are rebuilt.

    Raises PlaceTaken while a trainer works.
    """
    workspace = Workspace(config.home)
    workspace.lock()
    try:
        place = journal.tuning.take(f"rebuild-{os.getpid()}", config.train.lease_s, REBUILDING + session)
        try:
            yield workspace, place
        except BaseException:
            with suppress(LeaseLost, JournalUnavailable):
                journal.batches.release(place)
            raise
    finally:
        workspace.unlock()


def rebuild(
    config: Config, journal: Journal, workspace: Workspace, place: Batch, note: RebuildNote, stop: Stop, say: Say
) -> list[RebuiltUpdate]:
    """Rebuild the versions that depend on a session that is forgotten; gives what came of each update.

    The place is given back with the rebuilt versions. Raises RebuildStopped, LeaseLost where another version came to
    serve meanwhile, and TurnwiseError.
    """
    tick = _keeper(config, journal, place, stop)
    plan = plan_rebuild(journal, config, note.versions)
    for one in plan.notes:
        say(one)
    done = _work(config, journal, workspace, plan, note, tick, say) if plan.chain else []
    _publish(config, journal, workspace, place, plan, note, done)
    workspace.drop()
    return done


def _work(
    config: Config, journal: Journal, workspace: Workspace, plan: RebuildPlan, note: RebuildNote, tick: Tick, say: Say
) -> list[RebuiltUpdate]:
    """Do what is not done yet."""
    torch.set_num_threads(config.train.cpu_threads())
    transformers.utils.logging.disable_progress_bar()
    source = None if plan.start == BASE_VERSION else version_dir(config.versions_dir, plan.start)
    free = max(journal.rebuilding.free_number(), max(numbers_on_disk(config.versions_dir), default=0) + 1)
    workspace.begin_or_go_on(plan.start, source, free)
    maker = _Maker(config, workspace)
    parent = plan.start
    for position, link in enumerate(plan.chain):
        inputs = journal.updates.again(link.batch, note.turns)
        digest = _digest(inputs, parent)
        if position < len(workspace.done) and workspace.done[position].inputs == digest:
            done = workspace.done[position]
        else:
            workspace.keep_only(position)
            say(f"version {link.version.number} is made anew: batch {link.batch}, {len(inputs.samples)} samples")
            done = maker.make(inputs, parent, workspace.first + position, digest, journal.store.clock(), tick)
            workspace.add(done)
        if done.number is None:
            say(f"nothing came of batch {link.batch}: {'; '.join(done.gate.get('reasons', []))}")
        parent = done.number or parent
    workspace.keep_only(len(plan.chain))
    return [_as_update(config, link.version.number, done, workspace, plan) for link, done in zip(
        plan.chain, workspace.done, strict=True
    )]  # fmt: skip


class _Maker:
    """Makes updates in the workspace. The model is loaded anew where their settings differ."""

    def __init__(self, config: Config, workspace: Workspace) -> None:
        self._config, self._workspace = config, workspace
        self._settings: dict[str, Any] | None = None
        self._trainer: Trainer | None = None

    def make(self, inputs: UpdateInputs, parent: int, number: int, digest: str, now: float, tick: Tick) -> DoneUpdate:
        """One update, and its version's folder in the workspace where something came of it."""
        if not inputs.samples:
            return DoneUpdate(inputs.batch, digest, None, {"accepted": False, "reasons": ["all of it is forgotten"]})
        trainer = self._trainer_for(inputs.settings)
        try:
            candidate = trainer.train(inputs.as_batch("", parent), inputs.probes, tick)
        except BadBatch as e:
            return DoneUpdate(inputs.batch, digest, None, {"accepted": False, "reasons": [str(e)]})
        if not candidate.gate["accepted"]:
            return DoneUpdate(inputs.batch, digest, None, candidate.gate, candidate.metrics, dropped=candidate.dropped)
        turns = [s.turn_id for s in inputs.samples if s.turn_id not in candidate.dropped]
        path = str(version_dir(self._workspace.versions, number))
        version = PolicyVersion(number, parent, path, now, candidate.metrics, candidate.gate, turns)
        with trainer.stage(version) as put_in_place:
            put_in_place()
        taught = set(turns) | (set(inputs.hint_turns) if "lesson" in candidate.metrics else set())
        return DoneUpdate(
            inputs.batch,
            digest,
            number,
            candidate.gate,
            candidate.metrics,
            sorted(taught),
            candidate.dropped,
            now,
        )

    def _trainer_for(self, settings: dict[str, Any]) -> Trainer:
        if self._trainer is None or self._settings != settings:
            if self._trainer is not None:
                self._trainer.backend.close()
            config = as_it_was(self._config, settings).model_copy(update={"home": self._workspace.home})
            PictureStore(self._workspace.home).share(PictureStore(self._config.home))
            self._trainer = Trainer(config, supported_model(self._config.model.path))
            self._settings = settings
        return self._trainer


def _publish(
    config: Config,
    journal: Journal,
    workspace: Workspace,
    place: Batch,
    plan: RebuildPlan,
    note: RebuildNote,
    done: list[RebuiltUpdate],
) -> None:
    left_out = list(note.turns)
    for link in plan.chain:
        left_out += journal.updates.again(link.batch, note.turns).left_out

    def put_in_place() -> None:
        if done:
            workspace.move_out(config.versions_dir)

    journal.rebuilding.publish(place, note.session, done, plan.start, plan.gone, left_out, put_in_place)
    delete_pruned(journal)


def _as_update(config: Config, old: int, done: DoneUpdate, workspace: Workspace, plan: RebuildPlan) -> RebuiltUpdate:
    if done.number is None:
        return RebuiltUpdate(done.batch, old, None, done.gate, done.dropped)
    before = [one.number for one in workspace.done if one.number is not None and one.number < done.number]
    version = PolicyVersion(
        number=done.number,
        parent=max(before, default=plan.start),
        path=str(version_dir(config.versions_dir, done.number)),
        created_at=done.created_at,
        metrics=done.metrics,
        gate=done.gate,
        turn_ids=done.turns,
    )
    return RebuiltUpdate(done.batch, old, version, done.gate, done.dropped)


def _digest(inputs: UpdateInputs, parent: int) -> str:
    """Of all that an update is made of, so that one that is done is taken for no other."""
    story = [
        inputs.batch,
        parent,
        [[s.turn_id, s.reward, s.hint, s.question] for s in inputs.samples],
        inputs.hints,
        [s.turn_id for s in inputs.probes],
        inputs.settings,
    ]
    return hashlib.sha256(json.dumps(story, sort_keys=True).encode()).hexdigest()


def _keeper(config: Config, journal: Journal, place: Batch, stop: Stop) -> Tick:
    """A tick that keeps the trainer's place, and stops when told to."""
    renewed = time.monotonic()

    def tick(phase: str, done: int, total: int) -> None:
        nonlocal renewed
        if stop.is_set():
            raise RebuildStopped("stopped; the same command goes on from here, and until then the old versions serve")
        if time.monotonic() - renewed >= config.train.lease_s / 4:
            renewed = time.monotonic()
            journal.batches.renew(place, config.train.lease_s)

    return tick
