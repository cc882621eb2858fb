"""An adapter as a server sends it: an archive of PEFT's two files, read as a stranger's and checked against the model.

What is published is written anew from its numbers. Nothing is unpacked to disk.
"""

from __future__ import annotations

import json
import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from peft import LoraConfig
from safetensors import SafetensorError
from safetensors.torch import load
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from turnwise.config import TrainConfig
from turnwise.errors import AdapterError, ModelError
from turnwise.models.identity import base_digest
from turnwise.training.weights.base import State
from turnwise.training.weights.files import LORA_CONFIG, LORA_WEIGHTS
from turnwise.training.weights.lora import write_adapter

PREFIX = "base_model.model."
MOST_SETTINGS = 1 << 20
"""Bytes of an adapter's settings."""
TWO = (".lora_A.weight", ".lora_B.weight")


@dataclass(frozen=True, slots=True)
class HostedWeights:
    """An adapter of the model in ``folder``, to be written as a version's files."""

    folder: Path | str
    rank: int
    alpha: float
    kind: Literal["lora", "full"] = "lora"

    @property
    def base(self) -> str | None:
        """The digest of the base model in its folder; None of one on a hub."""
        return base_digest(str(self.folder))

    def write(self, state: State, folder: Path) -> None:
        """Write PEFT's files into an empty folder."""
        modules = sorted({name.removesuffix(TWO[0]).rpartition(".")[2] for name in state if name.endswith(TWO[0])})
        settings = LoraConfig(
            r=self.rank,
            lora_alpha=self.alpha,  # pyright: ignore[reportArgumentType]  # PEFT takes floats, annotates int
            target_modules=modules,
            task_type="CAUSAL_LM",
        )
        write_adapter(settings, str(self.folder), state, folder)


def linear_shapes(model: Path | str) -> dict[str, tuple[int, int]]:
    """The projections of a model by name, [out, in]; no weight of it is read. Raises ModelError."""
    try:
        with torch.device("meta"):
            whole = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(model))
    except (OSError, ValueError, KeyError) as e:
        raise ModelError(f"cannot read the configuration of the model {model}: {e}; run `turnwise doctor`") from e
    return {n: (m.out_features, m.in_features) for n, m in whole.named_modules() if isinstance(m, nn.Linear)}


def read_archive(archive: Path, shapes: Mapping[str, tuple[int, int]], config: TrainConfig) -> State:
    """The weights in a server's archive, in float32 under PEFT's names.

    Raises AdapterError for what is no adapter of this model, of this rank and this scale.
    """
    settings, weights = _files(archive)
    try:
        told, state = json.loads(settings), load(weights)
    except (ValueError, SafetensorError) as e:
        raise AdapterError(f"the server's adapter cannot be read: {e}") from e
    if not isinstance(told, dict) or told.get("peft_type") != "LORA":
        raise AdapterError("what the server sent is no LoRA adapter")
    _refuse_other_scale(told, config)
    for name, tensor in state.items():
        _refuse_other_shape(name, tuple(tensor.shape), shapes, config.lora_rank)
        if not torch.isfinite(tensor).all():
            raise AdapterError(f"the server's adapter has numbers in {name} that are not finite")
    pairs = {name.removesuffix(TWO[0]) for name in state if name.endswith(TWO[0])}
    if not pairs or {name + end for name in pairs for end in TWO} != state.keys():
        raise AdapterError("the server's adapter has no complete pairs of LoRA weights")
    return {name: tensor.float() for name, tensor in sorted(state.items())}


def _refuse_other_scale(told: Mapping[str, Any], config: TrainConfig) -> None:
    for name, key, ours in (("r", "lora_rank", config.lora_rank), ("lora_alpha", "lora_alpha", config.lora_alpha)):
        if told.get(name) != ours:
            raise AdapterError(
                f"the server trains with {name} = {told.get(name)}, the configuration says train.{key} = {ours:g}; set "
                "it to what the server has, in a new home"
            )


def _refuse_other_shape(name: str, shape: tuple[int, ...], shapes: Mapping[str, tuple[int, int]], rank: int) -> None:
    module = name.removeprefix(PREFIX)
    for end in TWO:
        module = module.removesuffix(end)
    if not name.startswith(PREFIX) or not name.endswith(TWO) or module not in shapes:
        raise AdapterError(f"the server's adapter has {name}, which is no projection of this model; is it another one?")
    out, into = shapes[module]
    if shape != ((rank, into) if name.endswith(TWO[0]) else (out, rank)):
        raise AdapterError(f"the server's adapter has {name} of {list(shape)}, which does not fit this model")


def _files(archive: Path) -> tuple[bytes, bytes]:
    """The bytes of both files, wherever in the archive they are; links and all else in it are left alone."""
    found: dict[str, bytes] = {}
    limits = {LORA_CONFIG: MOST_SETTINGS, LORA_WEIGHTS: 1 << 36}
    try:
        with tarfile.open(archive) as files:
            for member in files:
                name = member.name.rpartition("/")[2]
                if name not in limits or not member.isreg():
                    continue
                if name in found or member.size > limits[name]:
                    raise AdapterError(f"the server's archive has {name} twice, or larger than any adapter is")
                content = files.extractfile(member)
                assert content is not None
                found[name] = content.read()
    except (tarfile.TarError, OSError, EOFError, zlib.error) as e:
        raise AdapterError(f"the archive that the server sent is damaged: {e}") from e
    if missing := [name for name in limits if name not in found]:
        raise AdapterError(f"the archive that the server sent has no {missing[0]}")
    return found[LORA_CONFIG], found[LORA_WEIGHTS]
