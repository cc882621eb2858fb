"""Every weight of the model, or of the part of it that reads. What is learned stands in float32; the model computes in
its own number format.

In bfloat16 a weight of 0.02 moves in steps of 1e-4, so that nearly all of what an optimiser step adds would be rounded
away: the optimiser moves float32 masters, and the model computes with their rounded copies. Gradients of micro-batches
are summed in float32 as well.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, cast

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from turnwise.config import TrainConfig
from turnwise.errors import ModelError
from turnwise.models.identity import base_digest
from turnwise.training.weights.base import BETAS, State, Whose, check_shapes
from turnwise.training.weights.files import FULL_CONFIG, FULL_WEIGHTS, PICTURE_FILES, TEXT_FILES


class FullWeights:
    """All parameters of a model that was loaded in float32 from ``folder``; it computes in ``dtype`` from then on.

    Tied weights count once. With a ``part`` of the model it and the vocabulary projection learn; the rest is frozen,
    and stands in a version as it stands in the folder. Raises ModelError where a weight does not stand in the folder
    under its own name.
    """

    kind: Literal["lora", "full"] = "full"

    def __init__(
        self,
        model: PreTrainedModel,
        folder: Path,
        dtype: torch.dtype,
        config: TrainConfig,
        part: nn.Module | None = None,
    ) -> None:
        self.model = model
        self._folder = folder
        self.base = base_digest(folder)
        head = cast(nn.Linear, model.get_output_embeddings())
        everything = dict(model.named_parameters())
        learning = {id(p) for each in (part or model, head) for p in each.parameters()}
        self._working = {name: p for name, p in everything.items() if id(p) in learning}
        self._files = _files_of(folder, everything)
        self._frozen = everything.keys() - self._working.keys()
        for name in self._frozen:
            everything[name].requires_grad_(False).data = everything[name].data.to(dtype)
        self._masters = dict(self._working)
        if dtype != torch.float32:
            for name, parameter in self._working.items():
                self._masters[name] = nn.Parameter(parameter.data)
                parameter.data = parameter.data.to(dtype)
                parameter.register_post_accumulate_grad_hook(_summed_into(self._masters[name]))
        self._head = head
        self._head_name = next(name for name, p in self._working.items() if p is head.weight)
        self._kept = {n: p.data.clone() for n, p in self._working.items()} if config.reference == "kept" else None
        kept_head = head.weight.data.clone() if self._kept is None else self._kept[self._head_name]
        self._base_head = (kept_head, None if head.bias is None else head.bias.data.clone())
        self._parents_head = self._base_head
        self._as_base = False

    @property
    def shapes(self) -> Mapping[str, torch.Size]:
        return {name: parameter.shape for name, parameter in self._masters.items()}

    @property
    def whole_shapes(self) -> Mapping[str, torch.Size]:
        return self.shapes

    def named(self) -> dict[str, nn.Parameter]:
        return dict(self._masters)

    def whole(self, tensor: Tensor) -> Tensor:
        return tensor.detach().cpu().clone()

    def part(self, tensor: Tensor, parameter: nn.Parameter) -> Tensor:
        return tensor.to(parameter.device, copy=True)

    def optimizer(self, config: TrainConfig) -> torch.optim.Optimizer:
        made = torch.optim.AdamW(self.named().values(), lr=config.lr, betas=BETAS, weight_decay=config.weight_decay)
        made.register_step_post_hook(lambda *_: self._round())
        return made

    def snapshot(self) -> State:
        return {name: master.detach().cpu().clone() for name, master in self._masters.items()}

    @torch.no_grad()
    def restore(self, state: State | None) -> None:
        for name, master in self._masters.items():
            master.copy_(self.initial_of(name) if state is None else state[name])
        self._round()

    def mine(self, state: State) -> State:
        state = {name: tensor for name, tensor in state.items() if name not in self._frozen}
        check_shapes(state, self.shapes)
        return state

    def begin(self) -> None:
        bias = self._head.bias
        self._parents_head = (self._head.weight.data.clone(), None if bias is None else bias.data.clone())

    def initial(self) -> State:
        return {name: self.initial_of(name) for name in self._masters}

    @contextmanager
    def reference(self) -> Iterator[None]:
        if self._as_base:
            yield
            return
        mine = {name: parameter.data for name, parameter in self._working.items()}
        for name, parameter in self._working.items():
            kept = self.initial_of(name).to(parameter) if self._kept is None else self._kept[name]
            parameter.data = kept
        self._as_base = True
        try:
            yield
        finally:
            self._as_base = False
            for name, parameter in self._working.items():
                parameter.data = mine[name]

    def projection(self, whose: Whose) -> tuple[Tensor, Tensor | None]:
        if whose == "policy":
            return self._head.weight, self._head.bias
        return self._base_head if whose == "base" else self._parents_head

    def write(self, state: State, folder: Path) -> None:
        """A model folder in float32: nothing that was learned is rounded away."""
        whole = {**state, **{name: self.initial_of(name) for name in self._frozen}}
        save_file({n: t.contiguous() for n, t in whole.items()}, folder / FULL_WEIGHTS, metadata={"format": "pt"})
        settings = json.loads((self._folder / FULL_CONFIG).read_text(encoding="utf-8"))
        settings.pop("torch_dtype", None)
        settings["dtype"] = "float32"
        (folder / FULL_CONFIG).write_text(json.dumps(settings, indent=2), encoding="utf-8")
        for pattern in (*TEXT_FILES, *PICTURE_FILES, "generation_config.json"):
            for file in self._folder.glob(pattern):
                if file.is_file():
                    shutil.copyfile(file, folder / file.name)

    def refuse(self, version: int, settings: Mapping[str, Any]) -> None:
        """A whole model says itself what it is."""

    def release(self) -> None:
        """Hold no weights any more: others have them in parts. What stands in the folder can still be read."""
        self._working, self._masters, self._kept = {}, {}, {}
        nothing = torch.empty(0)
        self._base_head = self._parents_head = (nothing, None)

    @torch.no_grad()
    def _round(self) -> None:
        """What the model computes with is what the masters say."""
        for name, parameter in self._working.items():
            if parameter is not self._masters[name]:
                parameter.copy_(self._masters[name])

    def initial_of(self, name: str) -> Tensor:
        """A weight of the base model as its folder has it, in float32."""
        with safe_open(self._files[name], framework="pt") as shard:
            return shard.get_tensor(name).float().clone()


def _summed_into(master: nn.Parameter) -> Callable[[Tensor], None]:
    def collect(parameter: Tensor) -> None:
        assert parameter.grad is not None
        grad = parameter.grad.to(master.dtype)
        master.grad = grad if master.grad is None else master.grad.add_(grad)
        parameter.grad = None

    return collect


def _files_of(folder: Path, parameters: Mapping[str, Tensor]) -> dict[str, Path]:
    """The file of each parameter. Raises ModelError."""
    found: dict[str, Path] = {}
    try:
        for path in sorted(folder.glob("*.safetensors")):
            with safe_open(path, framework="pt") as shard:
                for name in shard.keys():  # noqa: SIM118 - not a dict
                    if name in parameters and tuple(shard.get_slice(name).get_shape()) == tuple(parameters[name].shape):
                        found[name] = path
    except (OSError, SafetensorError) as e:
        raise ModelError(f"the weights in {folder} cannot be read: {e}") from e
    if lacking := sorted(parameters.keys() - found.keys()):
        raise ModelError(
            f"{folder} holds no {lacking[0]} as the model has it, so that every weight cannot be trained and written "
            'back; set train.weights = "lora"'
        )
    return found
