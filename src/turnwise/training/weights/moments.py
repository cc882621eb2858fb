"""The optimiser's state beside the weights that it made: named as they are, so that it fits any number of processes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from turnwise.training.weights.base import State, TrainedWeights

FILE = "optimizer.state"
"""In safetensors' format, under a name that no loader of weights takes for some."""
SEPARATOR = "/"


def moments_of(weights: TrainedWeights, optimizer: torch.optim.Optimizer) -> State:
    """A copy of what an optimiser knows of each weight, as ``exp_avg/NAME`` and the like; {} before its first step."""
    found: State = {}
    for name, parameter in weights.named().items():
        for what, value in optimizer.state.get(parameter, {}).items():
            found[f"{what}{SEPARATOR}{name}"] = weights.whole(value)
    return found


def set_moments(weights: TrainedWeights, optimizer: torch.optim.Optimizer, state: State) -> None:
    """Go on from a state that `fits`; {} is a fresh optimiser."""
    optimizer.state.clear()
    named = weights.named()
    for key, value in state.items():
        what, _, name = key.partition(SEPARATOR)
        parameter = named[name]
        optimizer.state[parameter][what] = weights.part(value, parameter) if value.dim() else value.clone()


def fits(state: State, shapes: Mapping[str, torch.Size]) -> bool:
    """Whether a state is of weights of these shapes, and has all of AdamW's numbers for each of them."""
    expected = {
        f"{what}{SEPARATOR}{name}": shape for name, shape in shapes.items() for what in ("exp_avg", "exp_avg_sq")
    }
    expected |= {f"step{SEPARATOR}{name}": torch.Size([]) for name in shapes}
    return {key: value.shape for key, value in state.items()} == expected


def write_moments(state: State, folder: Path) -> None:
    save_file({name: tensor.contiguous() for name, tensor in state.items()}, folder / FILE)


def read_moments(folder: Path) -> State | None:
    """What stands in a folder; None where nothing does. Raises ValueError, saying why, where it cannot be read."""
    try:
        state = load_file(folder / FILE)
    except FileNotFoundError:
        return None
    except (OSError, SafetensorError) as e:
        raise ValueError(f"{folder / FILE} cannot be read ({e})") from e
    if odd := next((name for name, tensor in state.items() if not _finite(tensor)), None):
        raise ValueError(f"{folder / FILE}: {odd} is not finite")
    return state


def _finite(tensor: Tensor) -> bool:
    return bool(torch.isfinite(tensor).all())
