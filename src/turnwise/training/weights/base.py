"""What is trained of a model, as one small object: it can be referred to, snapshot, restored and published.

`lora.py` trains an adapter, `full.py` every weight. The policy, the losses and the gate do not know which.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from turnwise.config import TrainConfig
from turnwise.errors import AdapterError

State = dict[str, Tensor]
"""Trained weights by name, in float32 on the CPU: what a version's file holds."""
Whose = Literal["policy", "base", "parent"]
"""Whose vocabulary projection: that of the weights in place now, of the base model, or of where the update began.

A final hidden state is a distribution only beside the projection of the weights that it came of.
"""
BETAS = (0.9, 0.98)


class TrainedWeights(Protocol):
    """The part of a model that learns."""

    kind: Literal["lora", "full"]
    """As `train.weights` names it."""
    base: str | None
    """The digest of the base model in its folder; None of one on a hub."""

    @property
    def model(self) -> nn.Module:
        """The whole model, as it computes."""
        ...

    @property
    def shapes(self) -> Mapping[str, torch.Size]:
        """Of a snapshot, by name."""
        ...

    @property
    def whole_shapes(self) -> Mapping[str, torch.Size]:
        """Of what stands in a version's file."""
        ...

    def named(self) -> dict[str, nn.Parameter]:
        """What the optimiser moves, by the names of ``shapes``."""
        ...

    def whole(self, tensor: Tensor) -> Tensor:
        """A copy on the CPU of a parameter, or of a number that the optimiser has for each of its elements."""
        ...

    def part(self, tensor: Tensor, parameter: nn.Parameter) -> Tensor:
        """Such a copy where and as this process holds the parameter."""
        ...

    def optimizer(self, config: TrainConfig) -> torch.optim.Optimizer:
        """AdamW on them; after each of its steps the model computes with what it made."""
        ...

    def snapshot(self) -> State:
        """A copy of what is trained."""
        ...

    def restore(self, state: State | None) -> None:
        """Go to a snapshot of these shapes; None: to the base model."""
        ...

    def mine(self, state: State) -> State:
        """Of whole weights what a snapshot holds here. Raises AdapterError where they are of another model."""
        ...

    def begin(self) -> None:
        """An update begins here: its parent's projection is the one in place now."""
        ...

    def initial(self) -> State:
        """The snapshot with which the model is the base model."""
        ...

    def initial_of(self, name: str) -> Tensor:
        """One whole weight of it."""
        ...

    def reference(self) -> AbstractContextManager[None]:
        """Inside this context the model is the base model."""
        ...

    def projection(self, whose: Whose) -> tuple[Tensor, Tensor | None]:
        """Weight [V, H] and bias [V] of the vocabulary projection."""
        ...

    def write(self, state: State, folder: Path) -> None:
        """Write the files of a version, but ``meta.json``, into an empty folder."""
        ...

    def refuse(self, version: int, settings: Mapping[str, Any]) -> None:
        """Raises AdapterError where a version with these settings is none that training could go on from."""
        ...


def check_shapes(state: State, shapes: Mapping[str, torch.Size]) -> None:
    """Raises AdapterError, naming the difference, when a snapshot is of another model."""
    if odd := sorted(state.keys() ^ shapes.keys()):
        more = f" and {len(odd) - 1} more" if len(odd) > 1 else ""
        raise AdapterError(f"the version has other layers than this model: {odd[0]}{more}")
    for name, tensor in state.items():
        if tensor.shape != shapes[name]:
            raise AdapterError(f"the weight {name} of the version is {list(tensor.shape)}, not {list(shapes[name])}")
