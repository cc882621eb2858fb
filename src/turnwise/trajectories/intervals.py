"""Intervals of shares and of means, for figures that people read. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence

Z95 = 1.959964


def wilson(hits: int, cases: int) -> tuple[float, float] | None:
    """Wilson's 95 % interval of a share; None of no cases."""
    if not cases:
        return None
    share, z2 = hits / cases, Z95**2 / cases
    middle = (share + z2 / 2) / (1 + z2)
    half = Z95 * math.sqrt(share * (1 - share) / cases + z2 / (4 * cases)) / (1 + z2)
    return max(0.0, middle - half), min(1.0, middle + half)


def quantile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that ``share`` of the values do not exceed; None of none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


def mean(values: Sequence[float]) -> float | None:
    """None of none."""
    return sum(values) / len(values) if values else None
