"""Checkpoints: adapter, optimiser and position after every optimiser step, from which an update goes on unchanged.

A checkpoint belongs to a batch and a position in its plan; the last one of a published batch also holds the optimiser
state that the next update starts from. Each is a directory that is there whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from turnwise.config import TrainConfig
from turnwise.files import new_directory, sweep
from turnwise.types import Batch

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state after ``position`` optimiser steps of a batch, and the metrics of those steps.

    ``origin`` says of which turns and which parent; ``dropped`` are the turns that were left out, with the reason.
    """

    adapter: dict[str, Tensor]
    optimizer: dict[str, Any]
    position: int
    metrics: list[dict[str, float]]
    origin: str = ""
    dropped: dict[str, str] = field(default_factory=dict)


def origin_of(batch: Batch, parent: Mapping[str, Any], config: TrainConfig) -> str:
    """A digest of all that an update's course depends on: another course is not gone on with, but begun anew.

    That are the batch's turns, what they ask, and hints, the configuration, and the version (its ``meta.json``)
    underneath. Its number alone is not enough: where an older journal is restored, numbers are given out a second time.
    """
    story = [
        [[s.turn_id, s.question] for s in batch.samples],
        batch.hints,
        batch.parent,
        parent,
        config.model_dump(mode="json", exclude={"when"}),
    ]
    return hashlib.sha256(json.dumps(story, sort_keys=True).encode()).hexdigest()


class CheckpointStore:
    """The checkpoints folder. One trainer writes to it at a time."""

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(parents=True, exist_ok=True)
        sweep(root)

    @staticmethod
    def name(batch: int, position: int) -> str:
        return f"batch-{batch:06d}-step-{position:03d}"

    def save(self, batch: int, checkpoint: Checkpoint) -> str:
        """Put the checkpoint on disk, drop the batch's earlier ones, and return its name.

        Later ones stay: who saves behind them has lost the batch without knowing it yet.
        """
        name = self.name(batch, checkpoint.position)
        with new_directory(self._root / name) as folder:
            save_file(checkpoint.adapter, folder / "adapter_model.safetensors")
            torch.save(checkpoint.optimizer, folder / "optimizer.pt")
            names = ("position", "metrics", "origin", "dropped")
            position = {name: getattr(checkpoint, name) for name in names}
            (folder / "position.json").write_text(json.dumps(position), encoding="utf-8")
        for earlier in self._of(batch):
            if _position(earlier) < checkpoint.position:
                shutil.rmtree(earlier)
        return name

    def latest(self, batch: int, origin: str = "") -> Checkpoint | None:
        """The furthest checkpoint of a batch, or None where it has not come that far.

        One of the same number but of another origin is deleted.
        """
        found = self._of(batch)
        checkpoint = self.load(found[-1].name) if found else None
        if checkpoint is not None and checkpoint.origin != origin:
            log.warning("the checkpoint %s is of other turns or another parent and is deleted", found[-1])
            self.drop(batch)
            return None
        return checkpoint

    def load(self, name: str) -> Checkpoint | None:
        """A checkpoint by name. None when it is not there, or cannot be read (which costs time, not correctness)."""
        folder = self._root / name
        if not folder.is_dir():
            return None
        try:
            position = json.loads((folder / "position.json").read_text(encoding="utf-8"))
            adapter = load_file(folder / "adapter_model.safetensors")
            optimizer = torch.load(folder / "optimizer.pt", map_location="cpu", weights_only=True)
        except Exception as e:  # a damaged file makes each of the three readers raise errors of its own
            log.warning("the checkpoint %s cannot be read (%s) and is left out; its steps are done again", folder, e)
            return None
        told = {name: position[name] for name in ("origin", "dropped") if name in position}
        return Checkpoint(adapter, optimizer, position["position"], position["metrics"], **told)

    def drop(self, batch: int) -> None:
        """Forget what is there of a batch."""
        for folder in self._of(batch):
            shutil.rmtree(folder)

    def keep_only(self, names: Iterable[str]) -> None:
        """Delete every checkpoint but these."""
        kept = set(names)
        for folder in self._root.glob("batch-*-step-*"):
            if folder.name not in kept:
                shutil.rmtree(folder)

    def _of(self, batch: int) -> list[Path]:
        return sorted(self._root.glob(f"batch-{batch:06d}-step-*"), key=_position)


def _position(folder: Path) -> int:
    """As a number: step 1000 comes behind step 999."""
    return int(folder.name.rpartition("-")[2])
