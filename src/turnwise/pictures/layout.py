"""How a model's processor lays out a picture: to which size it scales it, and into how many tiles it cuts it.

Told from the picture's size alone, by the arithmetic of the Idefics3 and SmolVLM processors in transformers, so that
the gateway makes the processor's ids without a pixel and without torch. Tests hold it to these processors.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwise.capabilities import VISION_TYPES
from turnwise.errors import ModelError
from turnwise.pictures.patches import PatchLayout

LARGEST = 4096
"""Pixels of an edge to which these processors cut the size that their folder asks for."""


@dataclass(frozen=True, slots=True)
class Tiling:
    """What becomes of a picture: ``rows`` and ``columns`` of tiles beside one of the whole (0 and 0: the whole alone),
    and the ``width`` and ``height`` in pixels that it is scaled to."""

    rows: int
    columns: int
    width: int
    height: int

    @property
    def tiles(self) -> int:
        return self.rows * self.columns + 1


@dataclass(frozen=True, slots=True)
class PictureLayout:
    """A processor's settings. ``longest``: the edge that a picture is scaled to (None: it keeps its size); ``tile``: a
    tile's edge; ``splits``: whether it is cut into tiles; ``tokens``: ids of each tile."""

    longest: int | None
    tile: int
    splits: bool
    tokens: int

    def tiling(self, width: int, height: int) -> Tiling:
        """Of a picture of this size."""
        if not self.splits:
            return Tiling(0, 0, self.tile, self.tile)
        if self.longest is not None:
            width, height = _within(*_scaled(width, height, self.longest))
        width, height = _whole_tiles(width, height, self.tile)
        if width <= self.tile and height <= self.tile:
            return Tiling(0, 0, width, height)
        return Tiling(height // self.tile, width // self.tile, width, height)


def layout_of(folder: Path) -> PictureLayout | PatchLayout | None:
    """The layout of a model folder, or None of one whose model sees no pictures.

    Raises ModelError where the model sees, and its folder does not say how.
    """
    config = _read(folder / "config.json")
    if config.get("model_type") not in VISION_TYPES:
        return None
    words = _read(folder / "processor_config.json")
    pictures = words.get("image_processor") or _read(folder / "preprocessor_config.json")
    try:
        if config["model_type"] == "qwen3_vl":
            return PatchLayout.of(config, pictures)
        vision = config["vision_config"]
        seen = (int(vision["image_size"]) // int(vision["patch_size"])) ** 2 // int(config.get("scale_factor", 2)) ** 2
        tile = int(pictures["max_image_size"]["longest_edge"])
        tokens = int(words.get("image_seq_len", 169))
        longest = pictures["size"]["longest_edge"] if pictures.get("do_resize", True) else None
        found = PictureLayout(longest and int(longest), tile, bool(pictures.get("do_image_splitting", True)), tokens)
    except (KeyError, TypeError, ValueError, ArithmeticError, AttributeError) as e:
        raise ModelError(
            f"{folder} does not say how its pictures are laid out ({type(e).__name__}: {e}); it needs the "
            "preprocessor_config.json and processor_config.json that its model came with"
        ) from e
    if tile != int(vision["image_size"]) or tokens != seen:
        raise ModelError(
            f"the processor in {folder} makes {tokens} ids of a tile of {tile} pixels, and its model sees {seen} in "
            f"one of {vision['image_size']}; take the processor's files that the model came with"
        )
    return found


def _read(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    except (OSError, ValueError) as e:
        raise ModelError(f"{file} cannot be read: {e}") from e
    return found if isinstance(found, dict) else {}


def _scaled(width: int, height: int, longest: int) -> tuple[int, int]:
    """The longer edge at this length, and the other one even."""
    ratio = width / height
    if width >= height:
        width, height = longest, int(longest / ratio)
        height += height % 2
    else:
        width, height = int(longest * ratio), longest
        width += width % 2
    return max(width, 1), max(height, 1)


def _within(width: int, height: int) -> tuple[int, int]:
    ratio = width / height
    if width >= height and width > LARGEST:
        width, height = LARGEST, int(LARGEST / ratio)
    elif height > width and height > LARGEST:
        width, height = int(LARGEST * ratio), LARGEST
    return max(width, 1), max(height, 1)


def _whole_tiles(width: int, height: int, tile: int) -> tuple[int, int]:
    """Both edges as whole tiles, the longer one first."""
    ratio = width / height
    if width >= height:
        width = math.ceil(width / tile) * tile
        return width, math.ceil(int(width / ratio) / tile) * tile
    height = math.ceil(height / tile) * tile
    return math.ceil(int(height * ratio) / tile) * tile, height
