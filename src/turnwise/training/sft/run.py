"""A supervised fine-tuning from the file to the version that serves, in the trainer's place of a home.

It holds that place while it works, as a trainer holds its batch, so that no two make a version at once. What it
publishes is a version like any other: the server takes it up, later updates go on from it, and a rollback leaves it.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
import transformers

from turnwise.capabilities import capabilities, sees_pictures
from turnwise.config import Config
from turnwise.errors import ConfigError, JournalUnavailable, LeaseLost
from turnwise.journal import Journal
from turnwise.journal.deletion.retention import prune_versions
from turnwise.models.architectures import supported_model
from turnwise.pictures.store import PictureStore
from turnwise.tokens.rendering import load_renderer
from turnwise.training.backends.base import Backend
from turnwise.training.backends.choice import backend_of
from turnwise.training.lease import KeptLease
from turnwise.training.publish import numbers_on_disk, version_dir
from turnwise.training.scores import ScoreHistory
from turnwise.training.sft.conversations import DataFile, read_data
from turnwise.training.sft.course import SftProgress, SftStopped, TuningCourse, summary
from turnwise.training.sft.encoding import Encoded, encode_all
from turnwise.training.sft.pictures import FilePictures
from turnwise.training.sft.plan import all_steps, set_aside
from turnwise.training.sft.unfinished import SftSettings, SftStory, Unfinished
from turnwise.training.step import Tick
from turnwise.training.worker import Stop
from turnwise.types import Batch, PolicyVersion

log = logging.getLogger(__name__)

STATUS_KEY = "sft"


@dataclass(frozen=True, slots=True)
class SftTeller:
    """Whom the run tells how it goes on: sentences, and where it stands."""

    say: Callable[[str], None]
    report: Callable[[SftProgress], None]


def fine_tune(
    config: Config, data: Path, settings: SftSettings, stop: Stop, teller: SftTeller, *, anew: bool = False
) -> PolicyVersion:
    """Learn from the file and publish. Goes on with a run of it that was stopped; ``anew`` drops any such run.

    Raises SftStopped, and errors that say what to do: DataError, ConfigError, ModelError, AdapterError, LeaseLost,
    PlaceTaken, JournalError, DiskFull.
    """
    _refuse_impossible(config)
    unfinished = Unfinished(config.home)
    unfinished.lock()
    journal = Journal.open(config)
    try:
        journal.tuning.refuse_if_taken(config.train.lease_s, unfinished.run)
        if (run := unfinished.run) and journal.tuning.published(run) is not None:
            unfinished.drop()  # it was killed between its version and this

        def alive() -> None:
            if stop.is_set():
                raise SftStopped

        teller.say(f"reading {data.name}")
        read = _read(config, data, settings, PictureStore(unfinished.pictures), alive)
        return _learn(config, journal, unfinished, read, settings, stop, teller, anew)
    finally:
        journal.close()
        unfinished.unlock()


def look(config: Config, data: Path, settings: SftSettings, say: Callable[[str], None]) -> None:
    """Say what would be learned, without a model. Raises DataError and ModelError."""
    read = _read(config, data, settings, None, lambda: None)
    _encode(config, read, settings, lambda: None, say)


def _read(
    config: Config, data: Path, settings: SftSettings, store: PictureStore | None, alive: Callable[[], None]
) -> DataFile:
    """The file, with its pictures in the ``store`` where the model sees."""
    if not sees_pictures(config.model.path):
        return read_data(data, skip_broken=settings.skip_broken, alive=alive)
    pictures = FilePictures(data.resolve().parent, store)
    read = read_data(data, skip_broken=settings.skip_broken, alive=alive, take=pictures.take)
    return replace(read, pictures=pictures.digest)


def _learn(
    config: Config,
    journal: Journal,
    unfinished: Unfinished,
    read: DataFile,
    settings: SftSettings,
    stop: Stop,
    teller: SftTeller,
    anew: bool,
) -> PolicyVersion:
    """From the file's conversations to the version."""
    os.nice(max(0, 10 - os.nice(0)))  # it must not take the processor from answers
    torch.set_num_threads(config.train.cpu_threads())
    transformers.utils.logging.disable_progress_bar()
    model = supported_model(config.model.path)
    config.versions_dir.mkdir(parents=True, exist_ok=True)
    backend: Backend = backend_of(config, model, PictureStore(unfinished.pictures))
    parent = journal.versions.latest()
    meta = backend.prepare(parent, fresh=True)
    story = SftStory.of(read, str(model), parent, meta, settings, config.train)
    if anew:
        unfinished.drop()
    run, checkpoints = unfinished.begin_or_go_on(story)
    batch = journal.tuning.take(f"sft-{os.getpid()}", config.train.lease_s, run)
    try:
        if batch.parent != parent:
            raise LeaseLost(f"version {batch.parent} came to serve just now; run the same command again")
        tick = _keeper(config, journal, batch, stop)
        told = {"kind": STATUS_KEY, "run": run, "file": read.path.name, "sha256": read.sha256}
        journal.tuning.say_source(batch, told)
        learn, aside = _encode(config, read, settings, lambda: tick("reading", 0, 1), teller.say)
        course = TuningCourse(backend, checkpoints, story.origin, learn, aside, settings, config.train.seed)
        with KeptLease(journal, batch, config.train.lease_s) as kept:
            metrics = summary(course.run(kept.told_by(tick), teller.say, teller.report), settings.epochs)
            figures = _figures(config, journal, backend, kept.told_by(tick), teller.say)
        told |= {"conversations": len(learn), "set_aside": len(aside), "broken": read.broken} | asdict(settings)
        journal.tuning.say_source(batch, told)
        metrics |= ScoreHistory.of(meta.get("metrics", {})).metrics() | {"samples": float(len(learn))}
        version = _publish(config, journal, backend, batch, metrics, figures, told, tick)
    except BaseException:
        with suppress(LeaseLost, JournalUnavailable):
            journal.batches.release(batch)
        raise
    finally:
        backend.close()
        with suppress(JournalUnavailable):
            journal.status.forget(STATUS_KEY)
    unfinished.drop()
    if config.keep_versions:
        prune_versions(journal, config.keep_versions)
    return version


def _refuse_impossible(config: Config) -> None:
    if not capabilities(config).trainable:
        raise ConfigError(
            f"engine.kind is {config.engine.kind!r}, whose weights are not here; fine-tune a model that is"
        )
    if sees_pictures(config.model.path) and config.train.backend != "local":
        raise ConfigError(
            f"the model in {config.model.path} sees pictures, and is trained by one process alone; "
            'set train.backend = "local"'
        )
    if config.mode == "skills-only":
        raise ConfigError('mode is "skills-only", which keeps the weights as they are; set mode = "both"')


def _encode(
    config: Config, read: DataFile, settings: SftSettings, alive: Callable[[], None], say: Callable[[str], None]
) -> tuple[list[Encoded], list[Encoded]]:
    """What is learned, and what is set aside; says how much that is."""
    renderer = load_renderer(supported_model(config.model.path))
    encoded, told = encode_all(renderer, read.conversations, settings.context, alive)
    kept, aside = set_aside([one.digest for one in encoded], settings.eval_share, config.train.seed)
    learn = [encoded[i] for i in kept]
    if read.broken:
        say(f"{read.broken} broken lines are left out")
    for sentence in told.sentences(settings.context):
        say(sentence)
    steps = all_steps([e.tokens for e in learn], settings.batch_tokens, config.train.seed, settings.epochs)
    say(
        f"{len(learn)} conversations to learn with {sum(e.learned for e in learn)} answer tokens of "
        f"{sum(e.tokens for e in learn)}, {len(aside)} set aside; {len(steps)} steps in {settings.epochs} epochs"
    )
    return learn, [encoded[i] for i in aside]


def _keeper(config: Config, journal: Journal, batch: Batch, stop: Stop) -> Tick:
    """A tick that stops the run when asked to, keeps the place, and says in the journal how far it is."""
    lease_s = config.train.lease_s
    renewed, shown = time.monotonic(), float("-inf")

    def tick(phase: str, done: int, total: int) -> None:
        nonlocal renewed, shown
        if stop.is_set():
            raise SftStopped
        now = time.monotonic()
        if now - renewed >= lease_s / 4:
            renewed = now
            journal.batches.renew(batch, lease_s)
        if now - shown >= 1.0:
            shown = now
            journal.status.say(STATUS_KEY, {"state": phase, "done": done, "total": total})

    return tick


def _figures(
    config: Config, journal: Journal, backend: Backend, tick: Tick, say: Callable[[str], None]
) -> dict[str, Any]:
    """What the gate would say. It decides nothing here: who brings a file has said what is to be learned."""
    result: dict[str, Any] = {"accepted": True, "reasons": [], "alpha": 1.0, "skipped": "a fine-tuning is published"}
    if not config.gate.enabled:
        return result
    found = backend.figures(journal.batches.gate_probes(config.gate.probes, []), tick)
    if (rise := found["general_rise"]) is not None:
        say(f"answers of the general probe are {abs(rise):.3f} nats per token {'less' if rise > 0 else 'more'} likely")
    for reason in found["reasons"]:
        say(f"the gate would have refused it: {reason}")
    return result | {"would": found}


def _publish(
    config: Config,
    journal: Journal,
    backend: Backend,
    batch: Batch,
    metrics: dict[str, float],
    gate: dict[str, Any],
    source: dict[str, Any],
    tick: Tick,
) -> PolicyVersion:
    number = journal.batches.reserve_version(batch, max(numbers_on_disk(config.versions_dir), default=0))
    version = PolicyVersion(
        number=number,
        parent=batch.parent,
        path=str(version_dir(config.versions_dir, number)),
        created_at=journal.store.clock(),
        metrics=metrics,
        gate=gate,
        source=source,
    )
    tick("publishing", 0, 1)
    with ExitStack() as staged:
        with KeptLease(journal, batch, config.train.lease_s):  # a whole model takes a slow disk minutes
            put_in_place = staged.enter_context(backend.stage(version, with_moments=False))
        journal.batches.renew(batch, config.train.lease_s)
        journal.batches.finish(batch, version, put_in_place=put_in_place)
    return version
