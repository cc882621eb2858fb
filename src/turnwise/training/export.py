"""A version for use elsewhere: its adapter as PEFT reads it, or the whole model with the adapter merged into it.

What goes out says nothing of the person: no turn ids, no figures, and no folder of this machine.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import cast

import torch
from peft import LoraConfig, PeftModel, get_peft_model, set_peft_model_state_dict
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from turnwise.errors import AdapterError, ModelError
from turnwise.files import new_directory
from turnwise.training.weights.base import check_shapes
from turnwise.training.weights.files import LORA_CONFIG, LORA_WEIGHTS, TEXT_FILES, PublishedWeights, load_version_dir


def export_adapter(version: Path, base_model: str, target: Path) -> None:
    """Write the adapter of a version's folder to ``target``, which is there whole or not at all.

    ``base_model``: the name that PEFT is to look for the base model under. Raises AdapterError for a damaged version,
    and for one that is a whole model.
    """
    adapter = load_version_dir(version)
    if adapter.kind != "lora":
        raise AdapterError("this version is a whole model and has no adapter; say --merged")
    with new_directory(target) as folder:
        shutil.copyfile(version / LORA_WEIGHTS, folder / LORA_WEIGHTS)
        settings = adapter.settings | {"base_model_name_or_path": base_model}
        (folder / LORA_CONFIG).write_text(json.dumps(settings, indent=2, sort_keys=True), encoding="utf-8")


def export_merged(version: Path | None, base: Path, target: Path, *, bfloat16: bool = False) -> None:
    """Write the base model with a version's adapter merged into its weights, or what a version has for them: a model
    folder like any other.

    The sum is made and written in float32; ``bfloat16`` rounds it, and with it a part of what was learned goes.
    ``version`` None is the base model. Raises AdapterError where the adapter does not fit the model, ModelError where
    the model cannot be loaded.
    """
    adapter = None if version is None else load_version_dir(version)
    try:
        model = cast(PreTrainedModel, AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32))
    except (OSError, ValueError) as e:
        raise ModelError(f"cannot load the model {base}: {e}; run `turnwise doctor`") from e
    whole = model if adapter is None else _merged(model, adapter)
    with new_directory(target) as folder:
        if bfloat16:
            whole = cast(PreTrainedModel, nn.Module.to(whole, torch.bfloat16))
        whole.save_pretrained(folder)
        for pattern in TEXT_FILES:
            for file in base.glob(pattern):
                if file.is_file():
                    shutil.copyfile(file, folder / file.name)


def _merged(model: PreTrainedModel, adapter: PublishedWeights) -> PreTrainedModel:
    if adapter.kind == "full":
        return _with_weights(model, adapter)
    try:
        config = cast(LoraConfig, LoraConfig.from_peft_type(**adapter.settings))
        policy = cast(PeftModel, get_peft_model(model, config))
        left = set_peft_model_state_dict(policy, adapter.weights)
    except (ValueError, RuntimeError, TypeError) as e:
        raise AdapterError(f"the adapter does not fit the model: {e}; was it trained on another one?") from e
    if left.unexpected_keys or any("lora_" in name for name in left.missing_keys):
        raise AdapterError("the adapter has other layers than the model; was it trained on another one?")
    return cast(PreTrainedModel, policy.merge_and_unload())


def _with_weights(model: PreTrainedModel, version: PublishedWeights) -> PreTrainedModel:
    parameters = dict(model.named_parameters())
    check_shapes(version.weights, {name: p.shape for name, p in parameters.items()})
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(version.weights[name])
    return model
