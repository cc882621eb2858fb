"""A version that is a whole model of the base's shapes: read from its folder when it is to serve, a weight at a time.

It stays on disk until then, and is read again where its copy in memory had to make room. What decides how it computes
is the base model's configuration; its own is not read.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from turnwise.errors import AdapterError, ModelError
from turnwise.local_engine.model.adapters import Adapter, read_adapter
from turnwise.local_engine.model.checkpoint import StoredWeights

FILE = "model.safetensors"
_SPARE = ("lm_head.weight", "inv_freq")
"""Ends of names that a base's folder may have and a version's not: a tied head, and numbers that are computed."""


@dataclass(frozen=True, slots=True, eq=False)
class WholeModel:
    """Named like an adapter. Raises AdapterError from `tensor` for what cannot be served."""

    name: str
    path: str
    shapes: Mapping[str, tuple[int, ...]]
    stored: StoredWeights

    def tensor(self, name: str) -> Tensor:
        """A weight in float32."""
        try:
            found = self.stored.tensor(name)
        except (ModelError, OSError) as e:
            raise AdapterError(f"the version in {self.path} cannot be read any more: {e}") from e
        if not torch.isfinite(found).all():
            raise AdapterError(f"the version in {self.path} has numbers in {name} that are not finite")
        return found


def read_version(
    name: str, path: Path, linears: Mapping[str, tuple[int, ...]], base: Mapping[str, tuple[int, ...]]
) -> Adapter | WholeModel:
    """What is in a version's folder. ``linears``: shapes that an adapter may change; ``base``: all of them.

    Raises AdapterError, saying what is missing, broken, a link or does not fit.
    """
    if (path / "adapter_config.json").exists() or not (path / FILE).exists():
        return read_adapter(name, path, linears)
    if not stat.S_ISREG((path / FILE).lstat().st_mode):
        raise AdapterError(f"{path / FILE} is no plain file")
    try:
        stored = StoredWeights(path)
    except ModelError as e:
        raise AdapterError(str(e)) from e
    for weight, shape in stored.shapes.items():
        if base.get(weight) != shape:
            raise AdapterError(
                f"the version in {path} has {weight} {shape}, and the model {base.get(weight) or 'none'}"
            )
    lacking = sorted(w for w in base.keys() - stored.shapes.keys() if not w.endswith(_SPARE))
    if lacking:
        raise AdapterError(f"the version in {path} has no {lacking[0]}")
    return WholeModel(name, str(path), stored.shapes, stored)
