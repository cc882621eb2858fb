"""On what a policy computes: the device, the number format, and how many tokens a pass has there."""

from __future__ import annotations

import torch

from turnwise.config import TrainConfig
from turnwise.errors import ModelError
from turnwise.models.number_format import AUTO, processor_format


def pick_device(name: str) -> torch.device:
    """``auto`` is the first CUDA device, or the CPU where there is none. Raises ModelError for what is not there."""
    device = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ModelError(f"train.device is {name!r}, but torch finds no CUDA device; set it to 'auto' or 'cpu'")
    return device


def pick_dtype(name: str, device: torch.device) -> torch.dtype:
    """The base model's number format; the adapter is float32 in any case.

    In bfloat16 an update takes two thirds of the time and half the memory for activations, where the device has
    instructions for it; where these help products of few rows alone, `many_rows` computes the others in float32.
    """
    return torch.bfloat16 if name == AUTO and device.type != "cpu" else processor_format(name)


def with_passes(config: TrainConfig) -> TrainConfig:
    """The settings with a number of tokens in a pass, where they leave it to us.

    A pass over few tokens keeps a GPU waiting for its next kernel: with 4,096 instead of 256 an update of 135M to 7B
    parameters took a fifth to an eighth of the time on an H200 (BENCHMARKS.md). A CPU is busy with 256.
    """
    if config.microbatch_tokens:
        return config
    halves = config.backend == "local"  # where memory is short; several processes cannot, so theirs stay small
    tokens = 4096 if halves and pick_device(config.device).type != "cpu" else 256
    return config.model_copy(update={"microbatch_tokens": tokens})
