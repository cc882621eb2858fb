"""Weights laid out for sampling on a CPU.

A product with few rows is over before oneDNN has brought a plain weight into its own order, which it does for each
call anew: three quarters of a sampled token's time. Here that is done once for all tokens of some answers. What an
adapter adds is merged into the copies, where that gives what the local engine serves: beside them it takes as long
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import psutil
import torch
from peft.tuners.lora import Linear as LoraLinear
from torch import Tensor, nn

from turnwise.loops.memory import give_back
from turnwise.models.number_format import AUTO, MANY_ROWS, processor_format
from turnwise.training.weights.many_rows import ManyRowsLinear

ROWS = 16
"""The batch that the order is chosen for; any other gives the same numbers."""
LEAST = 128
"""Weights that are narrower, such as an adapter's, are not worth it."""

Projection = Callable[[Tensor], Tensor]


@contextmanager
def laid_out(model: nn.Module, head: tuple[Tensor, Tensor | None], merge: bool = False) -> Iterator[Projection | None]:
    """Let the model's projections use laid out copies of their weights, which must not change meanwhile.

    Gives the vocabulary's projection ``head`` (weight [V, H] and bias) in that form. None, and nothing is done, where
    it would not help: on a GPU, in another number format than the processor's, or where the memory for a second copy is
    not free. ``merge``: the base's weights are here as they are stored, so that an adapter may be merged into them; of
    some that were rounded a small change would be lost. Inside of this the adapters stay on or off as they are.
    """
    known = [m for m in model.modules() if isinstance(m, nn.Linear) and type(m) in (nn.Linear, ManyRowsLinear)]
    linears = [m for m in known if "forward" not in vars(m) and _worth_it(m.weight)]
    adapters = [m for m in model.modules() if merge and isinstance(m, LoraLinear) and _adds(m)]
    adapted = {id(m.get_base_layer()): m for m in adapters}
    room = sum(m.weight.nbytes for m in linears) + head[0].nbytes
    if _worth_it(head[0]):
        give_back()  # what learning freed would stand beside the copies
    if not (_worth_it(head[0]) and room < psutil.virtual_memory().available / 2):
        yield None
        return
    try:
        for linear in linears:
            adapter = adapted.get(id(linear))
            module, weight = (adapter, _merged(linear.weight, adapter)) if adapter else (linear, linear.weight)
            vars(module)["forward"] = _either(linear, module.forward, _laid_out(weight, linear.bias))
        yield _laid_out(*head)
    finally:
        for module in (*linears, *adapters):
            vars(module).pop("forward", None)
        give_back()


def _adds(adapter: LoraLinear) -> bool:
    """Whether an adapter adds something to its projection now, and no more than a low-rank product."""
    plain = adapter.active_adapters == ["default"] and not any(adapter.use_dora.values())
    return plain and not (adapter.disable_adapters or adapter.merged)


@torch.no_grad()
def _merged(weight: Tensor, adapter: LoraLinear) -> Tensor:
    return (weight.float() + adapter.get_delta_weight("default").float()).to(weight.dtype)


def _either(linear: nn.Linear, usual: Projection, ordered: Projection) -> Projection:
    """The ordered weights for few rows, and those as they stand where many are faster with them."""
    if not isinstance(linear, ManyRowsLinear):
        return ordered
    return lambda x: usual(x) if x.numel() >= MANY_ROWS * x.shape[-1] else ordered(x)


def _worth_it(weight: Tensor) -> bool:
    if weight.device.type != "cpu" or min(weight.shape) < LEAST or not torch.backends.mkldnn.is_available():
        return False
    return weight.dtype == processor_format(AUTO)


def _laid_out(weight: Tensor, bias: Tensor | None) -> Projection:
    ordered = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), ROWS)
    return partial(_product, ordered, None if bias is None else bias.detach())


def _product(weight: Tensor, bias: Tensor | None, x: Tensor) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise.default(x, weight, bias, "none", [], "")
