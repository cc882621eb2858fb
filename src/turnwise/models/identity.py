"""Which base model it is: a digest of its weights and configuration, by which a version knows its own.

An adapter says nothing without the weights it was trained on, and a folder of the same name may hold others by now.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from turnwise.errors import AdapterError
from turnwise.models.folders import sha256_of

BASE = "base_sha256"
"""Its name in a version's ``meta.json``."""


def base_digest(model: Path | str) -> str | None:
    """SHA-256 over ``config.json`` and the safetensors of a model folder, in hex; None for the name of a hub's model.

    Each file is read once in a process, unless it changes.
    """
    folder = Path(model)
    if not (folder / "config.json").is_file():
        return None
    files = [folder / "config.json", *sorted(folder.glob("*.safetensors"))]
    whole = hashlib.sha256()
    for file in files:
        found = file.stat()
        whole.update(f"{file.name} {_digest(file, found.st_size, found.st_mtime_ns)}\n".encode())
    return whole.hexdigest()


@lru_cache(maxsize=64)
def _digest(file: Path, _size: int, _mtime_ns: int) -> str:
    return sha256_of(file)


def refuse_other_base(version: int, meta: Mapping[str, Any], model: Path | str) -> None:
    """Raises AdapterError where a version's ``meta.json`` names another base model than this one.

    A version from before the digest was written, and a model of a hub, are taken as they are.
    """
    was = meta.get(BASE)
    if not was or (now := base_digest(model)) is None or was == now:
        return
    raise AdapterError(
        f"version {version} was trained on another base model (sha256 {str(was)[:12]}…) than {model} holds now "
        f"({now[:12]}…); put that model back (model.path), or start in a new home"
    )


def refuse_folder_of_other_base(version: int, folder: Path, model: Path | str) -> None:
    """The same of a version by its folder. Where its ``meta.json`` cannot be read, whoever loads the folder says so."""
    try:
        meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return
    if isinstance(meta, Mapping):
        refuse_other_base(version, meta, model)
