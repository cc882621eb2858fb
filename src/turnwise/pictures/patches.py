"""How Qwen's processor lays out a picture: to which size it scales it, and as how many rows and columns of ids.

Told from the picture's size alone, by the arithmetic of its processor in transformers; tests hold it to that one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from turnwise.errors import PictureRefused

MOST_STRETCHED = 200
"""How many times as long as the other an edge may be: this processor takes no others."""


@dataclass(frozen=True, slots=True)
class PictureGrid:
    """What becomes of a picture: ``rows`` and ``columns`` of ids, and the ``width`` and ``height`` in pixels that it is
    scaled to."""

    rows: int
    columns: int
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class PatchLayout:
    """A processor's settings. ``edge``: pixels of an edge of what one id shows; ``least`` and ``most``: the pixels of a
    whole picture, about."""

    edge: int
    least: int
    most: int

    @staticmethod
    def of(config: dict[str, Any], pictures: dict[str, Any]) -> PatchLayout:
        """From a folder's configuration and that of its processor. Raises KeyError, TypeError and ValueError."""
        size, vision = pictures.get("size") or {}, config["vision_config"]
        least: Any = pictures.get("min_pixels", size.get("shortest_edge"))
        most: Any = pictures.get("max_pixels", size.get("longest_edge"))
        patch, merged = int(pictures["patch_size"]), int(pictures["merge_size"])
        if (patch, merged) != (int(vision["patch_size"]), int(vision["spatial_merge_size"])):
            raise ValueError(
                f"its processor makes patches of {patch} pixels, {merged} to an edge, and its model sees others"
            )
        found = PatchLayout(patch * merged, int(least), int(most))
        if not 0 < found.least <= found.most or found.edge < 1:
            raise ValueError(f"a picture of {least} to {most} pixels")
        return found

    def grid(self, width: int, height: int) -> PictureGrid:
        """Of a picture of this size. Raises PictureRefused for one that is too long and thin."""
        if max(width, height) > MOST_STRETCHED * min(width, height):
            raise PictureRefused(
                f"a picture of {width} x {height} is more than {MOST_STRETCHED} times as long as wide, which this "
                "model does not take; cut it"
            )
        edge = self.edge
        rows, columns = round(height / edge), round(width / edge)
        if rows * columns * edge * edge > self.most:
            shrunk = math.sqrt(height * width / self.most)
            rows = max(1, math.floor(height / shrunk / edge))
            columns = max(1, math.floor(width / shrunk / edge))
        elif rows * columns * edge * edge < self.least:
            grown = math.sqrt(self.least / (height * width))
            rows, columns = math.ceil(height * grown / edge), math.ceil(width * grown / edge)
        return PictureGrid(rows, columns, columns * edge, rows * edge)
