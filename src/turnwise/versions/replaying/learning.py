"""Trains a copy's samples, with the trainer's own work, until none is left that teaches something."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers

from turnwise.config import Config
from turnwise.errors import AdapterError, TurnwiseError
from turnwise.journal import Journal
from turnwise.models.architectures import supported_model
from turnwise.training.gate.gate import Gate
from turnwise.training.policy import Policy
from turnwise.training.publish import version_dir
from turnwise.training.update import Trainer
from turnwise.training.weights.devices import with_passes
from turnwise.training.weights.files import load_version_dir
from turnwise.training.worker import Stop, work
from turnwise.types import BASE_VERSION, Sample

Say = Callable[[str], None]


def learn_all(config: Config, journal: Journal, stop: Stop, say: Say) -> None:
    """Train batch after batch, the last ones with less than a whole one. Raises TurnwiseError where that cannot be."""
    torch.set_num_threads(config.train.cpu_threads())
    transformers.utils.logging.disable_progress_bar()
    trainer = Trainer(config, supported_model(config.model.path))
    while not stop.is_set():
        batch = journal.batches.claim("replay", config.train.lease_s, at_once=True)
        if batch is None:
            return
        say(f"batch {batch.id}: {len(batch.samples)} samples on top of version {batch.parent}")
        if fault := work(config, journal, trainer, batch, stop, journal.store.steady):
            raise TurnwiseError(f"nothing can be trained: {fault}")


def measured(
    config: Config, homes: Sequence[tuple[Path, int]], probes: Sequence[Sample], say: Say
) -> list[dict[str, Any]]:
    """What the gate measures of versions beside the base model: ``homes`` has the folder of versions and the number.

    A version that is damaged or gone has {"fault": …} instead.
    """
    train = with_passes(config.train)
    policy = Policy(supported_model(config.model.path), train)
    gate = Gate(policy, supported_model(config.model.path), train, config.gate)
    found: list[dict[str, Any]] = []
    for versions, number in homes:
        say(f"measuring {f'version {number}' if number else 'the base model'}")
        try:
            adapter = None if number == BASE_VERSION else load_version_dir(version_dir(versions, number))
            policy.start_from(None)
            policy.load(None if adapter is None else adapter.weights)
        except AdapterError as e:
            found.append({"fault": str(e)})
            continue
        found.append(gate.measure(None, probes, lambda phase, done, total: None))
    return found
