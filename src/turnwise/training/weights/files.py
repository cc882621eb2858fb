"""The files of a published version, read back and checked: a PEFT adapter, or a whole model."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from turnwise.errors import AdapterError

LORA_WEIGHTS = "adapter_model.safetensors"
LORA_CONFIG = "adapter_config.json"
FULL_WEIGHTS = "model.safetensors"
FULL_CONFIG = "config.json"
META = "meta.json"
TEXT_FILES = ("tokenizer*", "special_tokens_map.json", "vocab.*", "merges.txt", "chat_template*", "LICENSE*")
"""What a model folder needs beside weights and settings; copied where it is there."""
PICTURE_FILES = ("preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json")
"""The same, of a model that sees pictures."""


@dataclass(frozen=True, slots=True)
class PublishedWeights:
    """A version as read from disk: its weights by name, what its own settings say, and turnwise's ``meta.json``.

    ``settings`` are those of PEFT for an adapter, those of the model's ``config.json`` for a whole model.
    """

    kind: Literal["lora", "full"]
    weights: dict[str, Tensor]
    settings: dict[str, Any]
    meta: dict[str, Any]


def kind_of(folder: Path) -> Literal["lora", "full"]:
    """What is in a version's folder; an adapter where that cannot be told."""
    whole = (folder / FULL_WEIGHTS).exists() and not (folder / LORA_CONFIG).exists()
    return "full" if whole else "lora"


def load_version_dir(path: Path) -> PublishedWeights:
    """Read and check a version's folder. ``meta.json`` may be missing: adapters made elsewhere load as well.

    Raises AdapterError that names the file and the fault.
    """
    kind = kind_of(path)
    settings = read_json(path / (LORA_CONFIG if kind == "lora" else FULL_CONFIG))
    meta = read_json(path / META) if (path / META).exists() else {}
    if kind == "lora" and (settings.get("peft_type") != "LORA" or not isinstance(settings.get("r"), int)):
        raise AdapterError(f"{path / LORA_CONFIG} does not describe a LoRA adapter (peft_type, r)")
    file = path / (LORA_WEIGHTS if kind == "lora" else FULL_WEIGHTS)
    try:
        weights = load_file(file)
    except FileNotFoundError:
        raise AdapterError(f"{path} has no {file.name}") from None
    except (OSError, SafetensorError) as e:
        raise AdapterError(f"{file} is damaged: {e}") from e
    if not weights:
        raise AdapterError(f"{file} holds no weights")
    for name, tensor in weights.items():
        if not torch.isfinite(tensor).all():
            raise AdapterError(f"{file}: {name} is not finite")
    return PublishedWeights(kind, weights, settings, meta)


def read_json(file: Path) -> dict[str, Any]:
    """The object in a file. Raises AdapterError."""
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise AdapterError(f"{file.parent} has no {file.name}; it is not an adapter directory") from None
    except (OSError, ValueError) as e:
        raise AdapterError(f"{file} cannot be read: {e}") from e
    if not isinstance(value, dict):
        raise AdapterError(f"{file} is not a JSON object")
    return cast(dict[str, Any], value)
