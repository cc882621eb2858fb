"""The number format that a processor computes fastest in.

In bfloat16 a product reads half the memory, where the processor has instructions for it (AVX-512, AMX). Elsewhere it is
emulated: on two cores with AVX2 alone eight answers were written in two and a half times the time of float32, and their
prompts read in four times (docs/models.md).

AVX-512's bfloat16 instructions help products of few rows, which wait for memory; on Intel's processors they compute no
faster than float32. That takes AMX, which many virtual machines hide. Without it a product of many rows is made in
float32, of the same numbers.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor
from torch.nn import functional as F

AUTO = "auto"
_FORMATS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def native_bfloat16() -> bool:
    """Whether this processor's products in bfloat16 are not emulated."""
    return torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


def processor_format(name: str) -> torch.dtype:
    """What ``name`` means for the processor; ``auto`` is bfloat16 where it has it. Raises KeyError for another name."""
    return _FORMATS[name] if name != AUTO else (torch.bfloat16 if native_bfloat16() else torch.float32)


def stored_formats(folder: Path) -> set[torch.dtype | None]:
    """Those of the weights in a model's folder; None stands for any other than these two. Empty where it has no
    safetensors."""
    names: set[str] = set()
    for path in folder.glob("*.safetensors"):
        with safe_open(path, framework="pt") as file:
            names |= {file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118 - not a dict
    return {{"F32": torch.float32, "BF16": torch.bfloat16}.get(name) for name in names}


MANY_ROWS = 64
"""From here on a product takes less time in float32, where `many_rows_in_float32`, its weight's conversion included.

On one core of a Xeon without AMX (2026-11-29) 74 to 84 GFLOP/s in bfloat16 were 79 to 93 with 64 rows, 98 to 117 with
128 and up to 143 with more; with 32 rows 70 were 60.
"""


@cache
def many_rows_in_float32() -> bool:
    """Whether this processor makes products of many rows faster in float32 than in bfloat16, both of which it has."""
    told = getattr(torch.cpu, "get_capabilities", dict)()
    few_alone = bool(told.get("avx512_bf16")) and told.get("amx_bf16") is False
    return native_bfloat16() and few_alone and str(told.get("cpu_name")).startswith("Intel")


def product_in_float32(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`linear` of bfloat16 numbers [..., in] with a bfloat16 weight [out, in]: [..., out] in float32."""
    return F.linear(x.float(), weight.float(), None if bias is None else bias.float())
