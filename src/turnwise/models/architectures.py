"""Which model folders can be served and trained here, told from their config.json before anything is loaded.

A folder that cannot is refused by the name of its architecture: transformers would load some of them with random
weights in place of a head, or compute with packed numbers as if they were plain ones.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from turnwise.capabilities import VISION_TYPES
from turnwise.errors import ModelError
from turnwise.models.folders import resolve_model

LEAN = frozenset({"llama", "mistral", "qwen2", "qwen3"})
"""Values of `model_type` for which the local engine has a forward pass of its own."""

LEAN_BEHIND_EYES = frozenset({"qwen3_vl_text"})
"""The same of the part that reads, in a model that sees."""

TRIED = ("granite", "olmo2")
"""Some that go the general way, over transformers' own modules, and are tested."""

SUPPORTED = (
    f"supported are {', '.join(sorted(LEAN))}, and other text models (…ForCausalLM) such as {', '.join(TRIED)}; "
    f"with pictures {' and '.join(sorted(VISION_TYPES))}"
)


def supported_model(name: str) -> Path | str:
    """What `resolve_model` finds, where it can be served and trained here. Raises ModelError."""
    found = resolve_model(name)
    if isinstance(found, Path):
        refuse_unsupported(found)
    return found


def refuse_unsupported(folder: Path) -> None:
    """Raises ModelError, by name, for what is no causal language model in plain numbers."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as e:
        raise ModelError(f"{folder}/config.json cannot be read: {e}") from e
    if fault := unsupported(config):
        raise ModelError(f"the model in {folder} is not supported: {fault}; {SUPPORTED}")


def unsupported(config: Any) -> str | None:
    """What is wrong with a model for our engine and trainer, or None."""
    if not isinstance(config, dict):
        return "its config.json is no object"
    named = config.get("architectures")
    architectures = [str(name) for name in named] if isinstance(named, list) else []
    kind = str(config.get("model_type"))
    sees = kind in VISION_TYPES and all(name.endswith("ForConditionalGeneration") for name in architectures)
    if architectures and not sees and not any(name.endswith("ForCausalLM") for name in architectures):
        return f"{', '.join(architectures)} (model_type {kind}) is no causal language model"
    packed = config.get("quantization_config")
    if packed:
        how = packed.get("quant_method", "some method") if isinstance(packed, dict) else packed
        return f"{', '.join(architectures) or kind} is quantised ({how}), and only plain weights can be trained"
    return None
