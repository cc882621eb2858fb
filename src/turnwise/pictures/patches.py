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
LARGEST = 2**26
"""Pixels to which a folder's processor may scale a picture; published ones say 2**24."""


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
        if not pictures.get("do_resize", True):
            raise ValueError("its processor keeps the size of a picture, which this model does not take")
        size, vision = pictures.get("size") or {}, config["vision_config"]
        least, most = (
            _whole(pictures[old] if pictures.get(old) is not None else size[new])
            for old, new in (("min_pixels", "shortest_edge"), ("max_pixels", "longest_edge"))
        )
        patch, merged = _whole(pictures["patch_size"]), _whole(pictures["merge_size"])
        if (patch, merged) != (vision["patch_size"], vision["spatial_merge_size"]):
            raise ValueError(
                f"its processor makes patches of {patch} pixels, {merged} to an edge, and its model sees others"
            )
        if not least <= most <= LARGEST:
            raise ValueError(f"a picture of {least} to {most} pixels, where {LARGEST} are the most")
        return PatchLayout(patch * merged, least, most)

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


def _whole(number: Any) -> int:
    if type(number) is not int or not number > 0:
        raise ValueError(f"{str(number)[:40]!r} is no whole number above 0")
    return number
