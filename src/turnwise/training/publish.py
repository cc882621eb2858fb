"""Publishing: a policy version is a PEFT directory that is there whole or not at all, and reading one back.

``versions/v{N}/`` holds ``adapter_model.safetensors``, ``adapter_config.json`` and ``meta.json``. Which version serves
is the journal's word. A directory gets its name inside of the transaction that records it, while its trainer holds the
batch: one that is recorded is never written to, moved or replaced. One whose number the journal gave out and has no row
for is a leftover of a crash.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from peft import LoraConfig
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from turnwise.errors import AdapterError
from turnwise.files import put_in_place, remove, staged, sync_all
from turnwise.journal import Journal
from turnwise.types import PolicyVersion

WEIGHTS = "adapter_model.safetensors"
LORA_CONFIG = "adapter_config.json"
META = "meta.json"


@dataclass(frozen=True, slots=True)
class PublishedAdapter:
    """An adapter as read from disk: its weights under PEFT's names, its LoRA settings, and turnwise's ``meta.json``."""

    weights: dict[str, Tensor]
    lora: dict[str, Any]
    meta: dict[str, Any]


def version_dir(versions: Path, number: int) -> Path:
    return versions / f"v{number}"


@contextmanager
def staged_version(
    version: PolicyVersion, weights: dict[str, Tensor], lora: LoraConfig, checkpoint: str | None, base_model: str
) -> Iterator[Callable[[], None]]:
    """Write a version beside ``version.path``, whole and synced. What is given puts it in place; unused, it is deleted.

    ``checkpoint`` names the checkpoint with the optimiser state; ``base_model`` is written for PEFT's own loader.
    """
    settings = {name: _plain(value) for name, value in lora.to_dict().items()}
    settings |= {"base_model_name_or_path": base_model, "inference_mode": True}
    meta = dataclasses.asdict(version) | {"checkpoint": checkpoint}
    del meta["path"], meta["pruned"]  # the folder may be moved or copied
    if version.source is None:  # it learned from turns
        del meta["source"]
    target = Path(version.path)
    with staged(target) as folder:
        save_file({name: tensor.contiguous() for name, tensor in weights.items()}, folder / WEIGHTS)
        (folder / LORA_CONFIG).write_text(json.dumps(settings, indent=2, sort_keys=True), encoding="utf-8")
        (folder / META).write_text(json.dumps(meta, indent=2), encoding="utf-8")
        sync_all(folder)
        yield lambda: put_in_place(folder, target)


def numbers_on_disk(versions: Path) -> list[int]:
    """The numbers of the version directories, whoever made them."""
    return sorted(int(d.name[1:]) for d in versions.glob("v*") if d.name[1:].isdigit())


def clean_leftovers(journal: Journal, versions: Path) -> None:
    """Delete the directories that a killed trainer put in place and could not record.

    Those of numbers that this journal kept for no batch are another one's, where an older copy was put back: they stay.
    """
    with journal.versions.unrecorded() as numbers:
        for number in numbers & set(numbers_on_disk(versions)):
            remove(version_dir(versions, number))


def recent_checkpoints(versions: Path, count: int) -> list[str]:
    """The checkpoint names of the newest ``count`` versions on disk."""
    names = []
    for number in reversed(numbers_on_disk(versions)[-count:]):
        with suppress(AdapterError):  # a damaged version says so where it is loaded
            names.append(str(_read_json(version_dir(versions, number) / META).get("checkpoint")))
    return names


def load_adapter_dir(path: Path) -> PublishedAdapter:
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
    return PublishedAdapter(weights, lora, meta)


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
