"""Finds the folder that a configured name means, and says what is wrong with a broken one.

Nothing here ever loads a model, or imports what does.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from safetensors import SafetensorError, safe_open

from turnwise.config import ModelConfig, cache_dir
from turnwise.errors import ModelError
from turnwise.models.table import AUTO, EMBEDDED, TABLE, AnswerDefaults, EmbeddedModel, fitting
from turnwise.patterns import anchored

MANIFEST = "turnwise.json"
_HUB_ID = anchored(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")


def model_named(name: str) -> EmbeddedModel | None:
    """The embedded model that ``name`` means, which may be `auto`; None for any other."""
    return fitting() if name == AUTO else TABLE.get(name)


def folder_of(model: EmbeddedModel) -> Path:
    """Where a pulled model stands, or will."""
    return cache_dir() / "models" / model.name


def is_pulled(model: EmbeddedModel) -> bool:
    """Whether its folder is there, and each file in its length."""
    return manifest_fault(model, folder_of(model), hashes=False) is None


def resolve_model(name: str) -> Path | str:
    """The folder that ``name`` means, or ``name`` itself when it is a hub id (left to transformers to fetch).

    Raises ModelError when an embedded model has not been pulled or is damaged, and when a local folder lacks its
    configuration, tokenizer or weights.
    """
    if model := model_named(name):
        folder, command = folder_of(model), "turnwise pull" + (f" {model.name}" if model.name != EMBEDDED else "")
        if not folder.is_dir():
            why = f" (what '{AUTO}' means on this machine)" if name == AUTO else ""
            raise ModelError(f"the model {model.name}{why} is not here yet; run `{command}`")
        if fault := manifest_fault(model, folder, hashes=False):
            raise ModelError(f"the model in {folder} is damaged ({fault}); run `{command}` to make it anew")
        return folder
    path = Path(name).expanduser()
    if path.is_dir():
        if fault := folder_fault(path):
            raise ModelError(f"{path} is not a usable model folder: {fault}")
        return path.resolve()
    if path.exists():
        raise ModelError(f"{path} is a file; give the folder that holds config.json and the safetensors")
    if not _HUB_ID.fullmatch(name):
        named = ", ".join(f"'{known}'" for known in TABLE)
        raise ModelError(f"no model folder at {path}; give {named}, a folder or a hub id such as 'owner/name'")
    return name


def answer_defaults(config: ModelConfig) -> AnswerDefaults:
    """Of the configured model: its own, where the configuration says nothing else."""
    model = model_named(config.path)
    own = model.answers if model else AnswerDefaults(None, 1.0)
    return AnswerDefaults(
        max_tokens=own.max_tokens if config.max_tokens is None else config.max_tokens,
        temperature=own.temperature if config.temperature is None else config.temperature,
    )


def longest_context(name: str) -> int | None:
    """Tokens that the model takes at most; None where nobody says before it is loaded."""
    if model := model_named(name):
        return model.context
    try:
        config = json.loads((Path(name).expanduser() / "config.json").read_text(encoding="utf-8"))
        told = config.get("max_position_embeddings")
    except (OSError, ValueError, AttributeError):
        return None
    return told if isinstance(told, int) else None


def manifest_fault(model: EmbeddedModel, folder: Path, *, hashes: bool) -> str | None:
    """What is wrong with a pulled folder, or None. Sizes alone find a cut file; ``hashes`` finds any damage."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if manifest["wheel_sha256"] != model.fingerprint:
            return "it was made from another package"
        for name, expected in manifest["files"].items():
            path = folder / name
            if path.stat().st_size != expected["size"]:
                return f"{name} has the wrong size"
            if hashes and sha256_of(path) != expected["sha256"]:
                return f"{name} has the wrong content"
    except (OSError, ValueError, KeyError, TypeError) as e:
        return f"{MANIFEST}: {e}"
    return None


def folder_fault(folder: Path) -> str | None:
    """What is missing or broken in a transformers model folder, or None."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return "config.json is missing"
    except (OSError, ValueError) as e:
        return f"config.json cannot be read ({e})"
    if not isinstance(config, dict) or "model_type" not in config:
        return "config.json names no model_type"
    if not any((folder / name).exists() for name in ("tokenizer.json", "tokenizer.model", "vocab.json")):
        return "the tokenizer is missing (tokenizer.json)"
    index = folder / "model.safetensors.index.json"
    shards = sorted(folder.glob("*.safetensors"))
    try:
        if index.exists():
            names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
            if missing := sorted(names - {s.name for s in shards}):
                return f"{missing[0]} is missing"
        if not shards:
            return "there are no *.safetensors weights"
        for shard in shards:
            # Reads the header and compares it with the file's length; the tensors stay on disk.
            with safe_open(shard, framework="np"):
                pass
    except (OSError, ValueError, KeyError, SafetensorError) as e:
        return f"the weights cannot be read ({e})"
    return None


def sha256_of(path: Path) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()
