"""Reads a PEFT LoRA directory and merges it into copies of the weights that it changes.

A merged copy costs nothing per token, which a low-rank branch beside every projection does on a CPU. Anything that a
plain merge would get wrong (DoRA, trained embeddings, biases) is refused by name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from turnwise.errors import AdapterError
from turnwise.local_engine.folders import read_files

_PREFIX = "base_model.model."
_UNSUPPORTED = (
    "use_dora",
    "modules_to_save",
    "alpha_pattern",
    "fan_in_fan_out",
    "lora_bias",
    "trainable_token_indices",
)


@dataclass(frozen=True, slots=True)
class Adapter:
    """A LoRA adapter: ``scale`` B A is added to a weight. ``factors``: its name to (A [r, in], B [out, r]), float32."""

    name: str
    path: str
    factors: Mapping[str, tuple[Tensor, Tensor]]
    scale: float

    def merged(self, name: str, base: Callable[[str], Tensor]) -> Tensor:
        """The weight ``name`` [out, in] with the adapter's change, if any; ``base`` gives it without, in float32."""
        weight = base(name)
        if name not in self.factors:
            return weight
        a, b = self.factors[name]
        return torch.addmm(weight, b, a, alpha=self.scale)


def read_adapter(name: str, path: Path, shapes: Mapping[str, tuple[int, ...]]) -> Adapter:
    """Read and check the PEFT directory at ``path`` against the model's weight ``shapes``.

    Raises AdapterError, saying what is missing, broken, a link or does not fit.
    """
    described, weights = read_files(path, ("adapter_config.json", "adapter_model.safetensors"))
    try:
        config = json.loads(described)
        tensors = load(weights)
    except (ValueError, SafetensorError) as e:
        raise AdapterError(f"the adapter in {path} cannot be read: {e}") from e
    rank, alpha = _settings(config, path)
    factors: dict[str, tuple[Tensor, Tensor]] = {}
    for key in tensors:
        if not key.endswith((".lora_A.weight", ".lora_B.weight")):
            raise AdapterError(f"the adapter in {path} holds {key}, which cannot be merged; only LoRA A and B can")
    for key in sorted(k for k in tensors if k.endswith(".lora_A.weight")):
        target = key.removeprefix(_PREFIX).removesuffix(".lora_A.weight") + ".weight"
        a, b = tensors[key].float(), tensors.get(key.replace(".lora_A.", ".lora_B."))
        if b is None:
            raise AdapterError(f"the adapter in {path} has {key} without its lora_B")
        if target not in shapes:
            raise AdapterError(f"the adapter in {path} changes {target}, which this model does not have")
        if a.shape[0] != rank or (b.shape[0], a.shape[1]) != shapes[target] or b.shape[1] != rank:
            got = f"A {tuple(a.shape)} and B {tuple(b.shape)} of rank {rank}"
            raise AdapterError(f"the adapter in {path} does not fit {target} {shapes[target]}: {got}")
        if not (a.isfinite().all() and b.isfinite().all()):
            raise AdapterError(f"the adapter in {path} has numbers in {target} that are not finite")
        factors[target] = (a, b.float())
    if not factors or 2 * len(factors) != len(tensors):
        raise AdapterError(f"the adapter in {path} holds no complete pairs of LoRA weights")
    scale = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
    return Adapter(name, str(path), factors, scale)


def _settings(config: object, path: Path) -> tuple[int, float]:
    """Rank and alpha of an adapter_config.json."""
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        raise AdapterError(f"{path}/adapter_config.json does not describe a LoRA adapter (peft_type LORA)")
    for key in _UNSUPPORTED:
        if config.get(key):
            raise AdapterError(f"{path}/adapter_config.json sets {key}, which the local engine cannot serve")
    if config.get("bias", "none") != "none" or config.get("rank_pattern"):
        raise AdapterError(f"{path}/adapter_config.json sets bias or rank_pattern, which the local engine cannot serve")
    rank, alpha = config.get("r"), config.get("lora_alpha")
    if not isinstance(rank, int) or rank < 1 or not isinstance(alpha, int | float) or not math.isfinite(alpha):
        raise AdapterError(
            f"{path}/adapter_config.json has r = {rank!r} and lora_alpha = {alpha!r}; numbers were expected"
        )
    return rank, float(alpha)
