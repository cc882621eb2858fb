"""Checkpoints of a fine-tuning: weights, optimiser and the metrics so far, from which it goes on unchanged.

A run takes hours, where an update takes minutes and is done again. The last two are kept, so that a damaged one costs
the steps since the one before. Each is a directory that is there whole or not at all.
"""

from __future__ import annotations

import json
import logging
import shutil
from dataclasses import dataclass
from pathlib import Path

from safetensors.torch import load_file, save_file

from turnwise.files import new_directory, sweep
from turnwise.training.weights.base import State
from turnwise.training.weights.moments import read_moments, write_moments

log = logging.getLogger(__name__)

KEPT = 2
WEIGHTS = "weights.safetensors"
POSITION = "position.json"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state after ``position`` optimiser steps, and the metrics of those steps; ``origin`` says of which run."""

    weights: State
    moments: State
    position: int
    metrics: list[dict[str, float]]
    origin: str = ""


class CheckpointStore:
    """A folder of checkpoints. One process writes to it at a time."""

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(parents=True, exist_ok=True)
        sweep(root)

    def save(self, checkpoint: Checkpoint) -> None:
        """Put it on disk, and drop all but the last ones."""
        with new_directory(self._root / f"step-{checkpoint.position:06d}") as folder:
            save_file(checkpoint.weights, folder / WEIGHTS)
            write_moments(checkpoint.moments, folder)
            told = {name: getattr(checkpoint, name) for name in ("position", "metrics", "origin")}
            (folder / POSITION).write_text(json.dumps(told), encoding="utf-8")
        for earlier in self._found()[:-KEPT]:
            shutil.rmtree(earlier)

    def latest(self, origin: str) -> Checkpoint | None:
        """The furthest one that can be read, or None; those of another origin are not of this run."""
        for folder in reversed(self._found()):
            try:
                told = json.loads((folder / POSITION).read_text(encoding="utf-8"))
                moments = read_moments(folder)
                if moments is None:
                    raise ValueError("it has no state of the optimiser")
                found = Checkpoint(load_file(folder / WEIGHTS), moments, **told)
            except Exception as e:  # a damaged file makes each of the readers raise errors of its own
                log.warning("the checkpoint %s cannot be read (%s); the run goes on from the one before", folder, e)
                continue
            if found.origin == origin:
                return found
        return None

    def _found(self) -> list[Path]:
        """As numbers: step 1000 comes behind step 999."""
        return sorted(self._root.glob("step-*"), key=lambda folder: int(folder.name.rpartition("-")[2]))
