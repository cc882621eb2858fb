"""An adapter: the base is frozen, and low-rank matrices beside its projections learn (LoRA)."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, cast

import torch
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from turnwise.config import TrainConfig
from turnwise.errors import AdapterError
from turnwise.models.identity import base_digest
from turnwise.training.weights.base import BETAS, State, Whose, check_shapes
from turnwise.training.weights.files import LORA_CONFIG, LORA_WEIGHTS


class LoraWeights:
    """LoRA on all linear projections but the vocabulary's, in float32.

    It starts from ``config.seed`` and is a no-op until trained, so a new one is the base model. ``name`` is the base
    model's, which is written for PEFT's own loader. With a ``part`` of the base only its projections learn.
    """

    kind: Literal["lora", "full"] = "lora"

    def __init__(self, base: PreTrainedModel, name: str, config: TrainConfig, part: nn.Module | None = None) -> None:
        lora = LoraConfig(
            r=config.lora_rank,
            lora_alpha=config.lora_alpha,  # pyright: ignore[reportArgumentType]  # PEFT takes floats, annotates int
            lora_dropout=0.0,
            target_modules="all-linear" if part is None else _linears(base, part),
            task_type="CAUSAL_LM",
        )
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # PEFT asks transformers by a name that is on its way out
            torch.manual_seed(config.seed)
            self.model = cast(PeftModel, get_peft_model(base, lora))
        self._head = cast(nn.Linear, base.get_output_embeddings())
        self._name = name
        self.base = base_digest(name)
        self._initial = self.snapshot()

    @property
    def shapes(self) -> Mapping[str, torch.Size]:
        return {name: tensor.shape for name, tensor in self._initial.items()}

    @property
    def whole_shapes(self) -> Mapping[str, torch.Size]:
        return self.shapes

    def named(self) -> dict[str, nn.Parameter]:
        learns = ((name, p) for name, p in self.model.named_parameters() if p.requires_grad)
        return {name.replace(".default.", "."): p for name, p in learns}  # as PEFT's files name them

    def whole(self, tensor: Tensor) -> Tensor:
        return tensor.detach().cpu().clone()

    def part(self, tensor: Tensor, parameter: nn.Parameter) -> Tensor:
        return tensor.to(parameter.device, copy=True)

    def optimizer(self, config: TrainConfig) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.named().values(), lr=config.lr, betas=BETAS, weight_decay=config.weight_decay)

    def snapshot(self) -> State:
        """Under PEFT's file names."""
        state = cast(State, get_peft_model_state_dict(self.model))
        return {name: tensor.detach().cpu().clone() for name, tensor in state.items()}

    def restore(self, state: State | None) -> None:
        set_peft_model_state_dict(self.model, self._initial if state is None else state)

    def mine(self, state: State) -> State:
        check_shapes(state, self.shapes)
        return state

    def begin(self) -> None:
        """The projection is frozen: it is everybody's."""

    def initial(self) -> State:
        return self._initial

    def initial_of(self, name: str) -> Tensor:
        return self._initial[name]

    @contextmanager
    def reference(self) -> Iterator[None]:
        with self.model.disable_adapter():
            yield

    def projection(self, whose: Whose) -> tuple[Tensor, Tensor | None]:
        return self._head.weight, self._head.bias

    def write(self, state: State, folder: Path) -> None:
        write_adapter(cast(LoraConfig, self.model.peft_config["default"]), self._name, state, folder)

    def refuse(self, version: int, settings: Mapping[str, Any]) -> None:
        """Weights mean nothing without their scale, alpha / rank: under another one they are another policy.

        And the optimiser's state is of yet another.
        """
        lora = cast(LoraConfig, self.model.peft_config["default"])
        for setting, name, now in (("lora_rank", "r", lora.r), ("lora_alpha", "lora_alpha", lora.lora_alpha)):
            if (was := settings.get(name)) != now:
                raise AdapterError(
                    f"version {version} was trained with train.{setting} = {was}, the configuration says {now}; "
                    f"set train.{setting} back to {was}, or start in a new home"
                )


def write_adapter(lora: LoraConfig, base: str, state: State, folder: Path) -> None:
    """Write PEFT's files of an adapter of the model ``base`` into a folder."""
    settings = {name: _plain(value) for name, value in lora.to_dict().items()}
    settings |= {"base_model_name_or_path": base, "inference_mode": True}
    save_file({name: tensor.contiguous() for name, tensor in state.items()}, folder / LORA_WEIGHTS)
    (folder / LORA_CONFIG).write_text(json.dumps(settings, indent=2, sort_keys=True), encoding="utf-8")


def _linears(base: nn.Module, part: nn.Module) -> list[str]:
    """The names of a part's projections in the whole model."""
    ours = {id(module) for module in part.modules() if isinstance(module, nn.Linear)}
    return [name for name, module in base.named_modules() if id(module) in ours]


def _plain(value: object) -> object:
    """PEFT's settings hold sets and enums; JSON has lists and strings."""
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return value
