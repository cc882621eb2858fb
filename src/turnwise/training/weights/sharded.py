"""What is trained, cut over several processes (FSDP2): each holds its part of every weight, and all of none for long.

A snapshot is this rank's part. Files hold whole weights: what one process wrote another number of them goes on with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from turnwise.config import TrainConfig
from turnwise.training.weights.base import BETAS, State, Whose, check_shapes
from turnwise.training.weights.full import FullWeights
from turnwise.training.weights.lora import LoraWeights

Projection = tuple[Tensor, Tensor | None]


class Backbone(nn.Module):
    """A language model up to its final hidden states, with the projection among its parameters."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, **inputs: Any) -> Any:
        return cast(nn.Module, self.model.get_decoder())(**inputs)


class ShardedWeights:
    """``inner`` in parts. It was made whole in every process, and is not asked for weights from here on."""

    def __init__(
        self, inner: LoraWeights | FullWeights, model: PreTrainedModel, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.kind: Literal["lora", "full"] = inner.kind
        self.base = inner.base
        self.model = inner.model
        self._inner = inner
        self._whole_shapes = dict(inner.shapes)
        self._rank, self._world = dist.get_rank(), dist.get_world_size()
        self.backbone = _sharded(model, dtype if self.kind == "full" else None, device)
        cut = inner.named() if isinstance(inner, LoraWeights) else dict(model.named_parameters())
        self._parts = {name: cast(DTensor, p) for name, p in cut.items()}
        if isinstance(inner, FullWeights):
            inner.release()
        self._head = cast(nn.Linear, model.get_output_embeddings())
        started = self.initial() if self.kind == "lora" else self.snapshot()
        self._start = started if self.kind == "lora" else {n: t.to(dtype) for n, t in started.items()}
        self._base_head = self._clone_of_head()
        self._parents_head = self._base_head
        self._as_base = False

    @property
    def shapes(self) -> Mapping[str, torch.Size]:
        return {name: part.to_local().shape for name, part in self._parts.items()}

    @property
    def whole_shapes(self) -> Mapping[str, torch.Size]:
        return self._whole_shapes

    def named(self) -> dict[str, nn.Parameter]:
        return cast(dict[str, nn.Parameter], dict(self._parts))

    def mine(self, state: State) -> State:
        check_shapes(state, self._whole_shapes)
        return {name: self._cut(tensor) for name, tensor in state.items()}

    def whole(self, tensor: Tensor) -> Tensor:
        """All ranks take part; the first one gets it."""
        found = tensor.detach()
        found = found.full_tensor() if isinstance(found, DTensor) else found
        return found.cpu().clone() if self._rank == 0 else found.new_zeros(0, device="cpu")

    def part(self, tensor: Tensor, parameter: nn.Parameter) -> Tensor:
        of = cast(DTensor, parameter)
        local = self._cut(tensor).to(of.to_local().device, copy=True)
        return DTensor.from_local(
            local, of.device_mesh, of.placements, run_check=False, shape=of.shape, stride=of.stride()
        )

    def optimizer(self, config: TrainConfig) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.named().values(), lr=config.lr, betas=BETAS, weight_decay=config.weight_decay)

    def snapshot(self) -> State:
        return {name: part.to_local().detach().cpu().clone() for name, part in self._parts.items()}

    @torch.no_grad()
    def restore(self, state: State | None) -> None:
        self.backbone.reshard()  # or what was put together before would stay
        for name, part in self._parts.items():
            part.to_local().copy_(self._initial_part(name) if state is None else state[name])

    def begin(self) -> None:
        self._parents_head = self._clone_of_head()

    def initial(self) -> State:
        return {name: self._initial_part(name) for name in self._parts}

    @contextmanager
    def reference(self) -> Iterator[None]:
        if self.kind == "lora":
            with self._inner.reference():
                yield
            return
        if self._as_base:
            yield
            return
        mine, self._as_base = self.snapshot(), True
        self.restore(self._start)
        try:
            yield
        finally:
            self._as_base = False
            self.restore(mine)

    def projection(self, whose: Whose) -> Projection:
        if whose == "policy" or self.kind == "lora":
            return self._gathered_head()
        return self._base_head if whose == "base" else self._parents_head

    def write(self, state: State, folder: Path) -> None:
        self._inner.write(state, folder)

    def refuse(self, version: int, settings: Mapping[str, Any]) -> None:
        self._inner.refuse(version, settings)

    def initial_of(self, name: str) -> Tensor:
        return self._inner.initial_of(name)

    def _initial_part(self, name: str) -> Tensor:
        return self._cut(self.initial_of(name))

    def _cut(self, tensor: Tensor) -> Tensor:
        """This rank's part of a whole tensor, as FSDP2 cuts it: along the first dimension."""
        parts = tensor.chunk(self._world, 0)
        return parts[self._rank] if self._rank < len(parts) else tensor[:0]

    def _gathered_head(self) -> Projection:
        if isinstance(self._head.weight, DTensor):
            self.backbone.unshard()
        return self._head.weight, self._head.bias

    def _clone_of_head(self) -> Projection:
        weight, bias = self._gathered_head()
        return weight.detach().clone(), None if bias is None else bias.detach().clone()


def _sharded(model: PreTrainedModel, dtype: torch.dtype | None, device: torch.device) -> Any:
    """The model's backbone, each layer cut for itself and the rest together. Gradients are summed, not averaged."""
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    backbone = Backbone(model)
    layers = [m for m in model.modules() if isinstance(m, GradientCheckpointingLayer)]
    for layer in layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(backbone, mesh=mesh, mp_policy=policy, reshard_after_forward=False)  # the projection is still needed
    for module in (*layers, backbone):
        shard = cast(FSDPModule, module)
        shard.set_gradient_divide_factor(1.0)
        shard.set_force_sum_reduction_for_comms(True)  # gloo has no other
    return backbone
