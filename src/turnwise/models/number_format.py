"""The number format that a processor computes fastest in.

In bfloat16 a product reads half the memory, where the processor has instructions for it (AVX-512, AMX). Elsewhere it is
emulated: on two cores with AVX2 alone eight answers were written in two and a half times the time of float32, and their
prompts read in four times (docs/models.md).
"""

from __future__ import annotations

import torch

AUTO = "auto"
_FORMATS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def native_bfloat16() -> bool:
    """Whether this processor's products in bfloat16 are not emulated."""
    return torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


def processor_format(name: str) -> torch.dtype:
    """What ``name`` means for the processor; ``auto`` is bfloat16 where it has it. Raises KeyError for another name."""
    return _FORMATS[name] if name != AUTO else (torch.bfloat16 if native_bfloat16() else torch.float32)
