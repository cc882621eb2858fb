"""Publishing: a policy version is a PEFT directory that is there whole or not at all, and reading one back.

``versions/v{N}/`` holds ``adapter_model.safetensors``, ``adapter_config.json`` and ``meta.json``. Which version serves
is the journal's word; a directory without a row there is a leftover of a crash and may be replaced.
"""

from __future__ import annotations

import dataclasses
import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from peft import LoraConfig
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from turnwise.errors import AdapterError
from turnwise.training.files import new_directory
from turnwise.types import PolicyVersion

WEIGHTS = "adapter_model.safetensors"
LORA_CONFIG = "adapter_config.json"
META = "meta.json"


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter as read from disk: its weights under PEFT's names, its LoRA settings, and turnwise's ``meta.json``."""

    weights: dict[str, Tensor]
    lora: dict[str, Any]
    meta: dict[str, Any]


def version_dir(versions: Path, number: int) -> Path:
    return versions / f"v{number}"


def write_version(
    version: PolicyVersion, weights: dict[str, Tensor], lora: LoraConfig, checkpoint: str, base_model: str
) -> None:
    """Put a version on disk at ``version.path``: synced, then renamed into place.

    ``checkpoint`` names the checkpoint with the optimiser state; ``base_model`` is written for PEFT's own loader.
    """
    settings = {name: _plain(value) for name, value in lora.to_dict().items()}
    settings |= {"base_model_name_or_path": base_model, "inference_mode": True}
    meta = dataclasses.asdict(version) | {"checkpoint": checkpoint}
    del meta["path"]  # the folder may be moved or copied
    with new_directory(Path(version.path)) as folder:
        save_file({name: tensor.contiguous() for name, tensor in weights.items()}, folder / WEIGHTS)
        (folder / LORA_CONFIG).write_text(json.dumps(settings, indent=2, sort_keys=True), encoding="utf-8")
        (folder / META).write_text(json.dumps(meta, indent=2), encoding="utf-8")


def recent_checkpoints(versions: Path, count: int) -> list[str]:
    """The checkpoint names of the newest ``count`` versions on disk."""
    numbered = sorted((int(d.name[1:]) for d in versions.glob("v*") if d.name[1:].isdigit()), reverse=True)
    names = []
    for number in numbered[:count]:
        with suppress(AdapterError):  # a damaged version says so where it is loaded
            names.append(str(_read_json(version_dir(versions, number) / META).get("checkpoint")))
    return names


def load_adapter_dir(path: Path) -> Adapter:
    """Read and check an adapter directory. ``meta.json`` may be missing: adapters made elsewhere load as well.

    Raises AdapterError that names the file and the fault.
    """
    lora = _read_json(path / LORA_CONFIG)
    meta = _read_json(path / META) if (path / META).exists() else {}
    if lora.get("peft_type") != "LORA" or not isinstance(lora.get("r"), int):
        raise AdapterError(f"{path / LORA_CONFIG} does not describe a LoRA adapter (peft_type, r)")
    try:
        weights = load_file(path / WEIGHTS)
    except FileNotFoundError:
        raise AdapterError(f"{path} has no {WEIGHTS}") from None
    except (OSError, SafetensorError) as e:
        raise AdapterError(f"{path / WEIGHTS} is damaged: {e}") from e
    if not weights:
        raise AdapterError(f"{path / WEIGHTS} holds no weights")
    for name, tensor in weights.items():
        if not torch.isfinite(tensor).all():
            raise AdapterError(f"{path / WEIGHTS}: {name} is not finite")
    return Adapter(weights, lora, meta)


def _read_json(file: Path) -> dict[str, Any]:
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise AdapterError(f"{file.parent} has no {file.name}; it is not an adapter directory") from None
    except (OSError, ValueError) as e:
        raise AdapterError(f"{file} cannot be read: {e}") from e
    if not isinstance(value, dict):
        raise AdapterError(f"{file} is not a JSON object")
    return cast(dict[str, Any], value)


def _plain(value: object) -> object:
    """PEFT's settings hold sets and enums; JSON has lists and strings."""
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return value
