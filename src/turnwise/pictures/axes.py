"""Positions of ids on three axes, as models have them whose attention tells rows of a picture from columns (M-RoPE).

A word has one position on all three. The ids of a picture share the first one, and have their row and their column on
the others; what comes behind begins after the longer edge. Pure functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Axes = tuple[list[int], list[int], list[int]]
"""Positions of some ids: by time, row and column."""


@dataclass(frozen=True, slots=True)
class GridAt:
    """A picture's ids stand from ``first`` on, row by row."""

    first: int
    rows: int
    columns: int

    @property
    def saved(self) -> int:
        """How many positions fewer than ids it takes."""
        return self.rows * self.columns - max(self.rows, self.columns)


def axes_between(start: int, end: int, grids: Sequence[GridAt]) -> Axes:
    """Of the ids from ``start`` to ``end`` of a text with these pictures, which ascend."""
    time = list(range(start, end))
    rows, columns = list(time), list(time)
    for grid in grids:
        count = grid.rows * grid.columns
        base = grid.first - sum(other.saved for other in grids if other.first < grid.first)
        for at in range(max(start, grid.first), min(end, grid.first + count)):
            row, column = divmod(at - grid.first, grid.columns)
            time[at - start], rows[at - start], columns[at - start] = base, base + row, base + column
        behind = range(max(start, grid.first + count), end)
        for at in behind:
            time[at - start] -= grid.saved
            rows[at - start] -= grid.saved
            columns[at - start] -= grid.saved
    return time, rows, columns
