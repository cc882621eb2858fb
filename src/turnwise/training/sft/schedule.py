"""How fast a fine-tuning learns at each of its steps: up in a line, then down along half a cosine."""

from __future__ import annotations

import math


def warm_up_steps(steps: int, share: float) -> int:
    """The steps that a share of a run is, rounded down: the first moves nothing, which a short run cannot spare."""
    return int(steps * share)


def cosine(step: int, steps: int, warm_up: int) -> float:
    """What the learning rate of step ``step`` (from 0) is multiplied by: 0 at first, 1 after the warm-up, 0 at the end.

    The values are those of ``transformers.get_cosine_schedule_with_warmup`` with its default of half a wave.
    """
    if step < warm_up:
        return step / max(1, warm_up)
    progress = (step - warm_up) / max(1, steps - warm_up)
    return max(0.0, 0.5 * (1 + math.cos(math.pi * progress)))
