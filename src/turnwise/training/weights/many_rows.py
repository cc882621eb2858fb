"""A frozen base in bfloat16 on a processor that makes products of many rows faster in float32."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from turnwise.models.number_format import MANY_ROWS, product_in_float32


class ManyRowsLinear(nn.Linear):
    """A frozen projection [out, in] in bfloat16 that computes in float32 where it is asked for many rows."""

    def forward(self, input: Tensor) -> Tensor:
        return product(input, self.weight, self.bias)


def use_float32(model: nn.Module) -> None:
    """Let the model's projections be such ones; their weights stay what and where they are."""
    for linear in model.modules():
        if type(linear) is nn.Linear and linear.weight.dtype == torch.bfloat16:
            linear.__class__ = ManyRowsLinear


def product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Of x [..., in] with a frozen weight: no gradient comes to the weight."""
    if x.numel() < MANY_ROWS * x.shape[-1] or x.dtype != torch.bfloat16:
        return F.linear(x, weight, bias)
    return _InFloat32.apply(x, weight, bias)


class _InFloat32(torch.autograd.Function):
    """Keeps the weight for the backward pass as it is, where autograd would keep the float32 one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(weight)
        return product_in_float32(x, weight, bias).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (weight,), (grad,) = ctx.saved_tensors, grads
        return (grad.float() @ weight.float()).to(grad.dtype), None, None
