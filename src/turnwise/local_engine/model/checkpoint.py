"""The weights of a model folder as it holds them, read one at a time in float32 from memory-mapped safetensors.

Adapters are merged into these numbers, not into the served bfloat16 ones: a small change added to an already rounded
weight would mostly be rounded away again.
"""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from turnwise.errors import ModelError


class StoredWeights:
    """Tensors by name. ``shapes`` lists them all. Raises ModelError when the folder cannot be read.

    Files are mapped only while a tensor is read: kept open, they would count as memory of this process in full.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, Path] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        try:
            for path in sorted(folder.glob("*.safetensors")):
                with safe_open(path, framework="pt") as shard:
                    for name in shard.keys():  # noqa: SIM118 - not a dict
                        self._files[name] = path
                        self.shapes[name] = tuple(shard.get_slice(name).get_shape())
        except (OSError, SafetensorError) as e:
            raise ModelError(f"the weights in {folder} cannot be read: {e}") from e

    def tensor(self, name: str) -> Tensor:
        """The tensor ``name`` in float32. Raises ModelError when there is none."""
        if name not in self._files:
            raise ModelError(f"the weights in {self._folder} have no {name}")
        with safe_open(self._files[name], framework="pt") as shard:
            return shard.get_tensor(name).float().clone()
