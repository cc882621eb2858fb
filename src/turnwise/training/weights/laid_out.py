"""Weights laid out for sampling on a CPU.

A product with few rows is over before oneDNN has brought a plain weight into its own order, which it does for each
call anew: three quarters of a sampled token's time. Here that is done once for all tokens of some answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import psutil
import torch
from torch import Tensor, nn

from turnwise.loops.memory import give_back
from turnwise.models.number_format import AUTO, MANY_ROWS, processor_format
from turnwise.training.weights.many_rows import ManyRowsLinear, product

ROWS = 16
"""The batch that the order is chosen for; any other gives the same numbers."""
LEAST = 128
"""Weights that are narrower, such as an adapter's, are not worth it."""

Projection = Callable[[Tensor], Tensor]


@contextmanager
def laid_out(model: nn.Module, head: tuple[Tensor, Tensor | None]) -> Iterator[Projection | None]:
    """Let the model's projections use laid out copies of their weights, which must not change meanwhile.

    Gives the vocabulary's projection ``head`` (weight [V, H] and bias) in that form. None, and nothing is done, where
    it would not help: on a GPU, in another number format than the processor's, or where the memory for a second copy is
    not free.
    """
    known = [m for m in model.modules() if isinstance(m, nn.Linear) and type(m) in (nn.Linear, ManyRowsLinear)]
    linears = [m for m in known if "forward" not in vars(m) and _worth_it(m.weight)]
    room = sum(m.weight.nbytes for m in linears) + head[0].nbytes
    if _worth_it(head[0]):
        give_back()  # what learning freed would stand beside the copies
    if not (_worth_it(head[0]) and room < psutil.virtual_memory().available / 2):
        yield None
        return
    try:
        for linear in linears:
            vars(linear)["forward"] = _either(linear, _laid_out(linear.weight, linear.bias))
        yield _laid_out(*head)
    finally:
        for linear in linears:
            vars(linear).pop("forward", None)
        give_back()


def _either(linear: nn.Linear, ordered: Projection) -> Projection:
    """The ordered weights for few rows, and those as they stand where many are faster with them."""
    if not isinstance(linear, ManyRowsLinear):
        return ordered
    weight, bias = linear.weight, linear.bias
    return lambda x: product(x, weight, bias) if x.numel() >= MANY_ROWS * x.shape[-1] else ordered(x)


def _worth_it(weight: Tensor) -> bool:
    if weight.device.type != "cpu" or min(weight.shape) < LEAST or not torch.backends.mkldnn.is_available():
        return False
    return weight.dtype == processor_format(AUTO)


def _laid_out(weight: Tensor, bias: Tensor | None) -> Projection:
    ordered = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), ROWS)
    return partial(_product, ordered, None if bias is None else bias.detach())


def _product(weight: Tensor, bias: Tensor | None, x: Tensor) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise.default(x, weight, bias, "none", [], "")
