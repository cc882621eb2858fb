"""Numbered boxes on a picture of the window, so that a policy that sees can name what it clicks.

They are drawn on the picture and never into the page, which neither sees nor moves them. Pure.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from turnwise.environments.base import Call
from turnwise.environments.browser.calls import MARKED, RefusedCall

COLORS = ("#c00000", "#0050c0", "#007830", "#8000a0", "#a05000", "#006878")
FONT_SIZE = 11
PADDING = 2
"""Pixels between a number and the edge of its plate."""
MOST_BYTES = 3_000_000
"""Of a picture's file: a larger one becomes a JPEG."""
QUALITIES = (80, 40, 10)
"""Of a JPEG, one after the other until the file is small enough."""
FAST = 1
"""How hard a PNG is packed: a picture with boxes is made at every step."""


@dataclass(frozen=True, slots=True)
class Mark:
    """An element that can be used: its number on the picture, its box (left, top, right, bottom) and its middle, all in
    pixels of the window, and what it is in words."""

    number: int
    box: tuple[int, int, int, int]
    middle: tuple[int, int]
    says: str

    def __str__(self) -> str:
        return f"[{self.number}] {self.says}"


def marks_in(seen: Mapping[str, Any]) -> tuple[Mark, ...]:
    """What of the elements of a page that was read (`Tabs.seen`) can be used, numbered from 1 in the page's order."""
    found: list[Mark] = []
    lines, boxes = seen.get("lines"), seen.get("boxes")
    for line, box in zip(lines, boxes, strict=False) if isinstance(lines, list) and isinstance(boxes, list) else ():
        if isinstance(box, list) and len(box) == 7 and all(map(_is_finite, box)) and box[6]:
            left, top, right, bottom, x, y = map(int, box[:6])
            found.append(Mark(len(found) + 1, (left, top, right, bottom), (x, y), str(line)))
    return tuple(found)


def drawn(png: bytes, marks: tuple[Mark, ...]) -> bytes:
    """The picture with a box around each, and its number on a plate at the box's upper left corner; without any the
    very file, unless it is too large."""
    if not marks and len(png) <= MOST_BYTES:
        return png
    with Image.open(io.BytesIO(png), formats=("PNG",)) as opened:
        picture = opened.convert("RGB")
    draw, font = ImageDraw.Draw(picture), ImageFont.load_default(FONT_SIZE)
    for mark in marks:
        left, top, right, bottom = mark.box
        color = COLORS[mark.number % len(COLORS)]
        right, bottom = max(right - 1, left), max(bottom - 1, top)
        draw.rectangle((left, top, right, bottom), outline=color)
        width, height = draw.textbbox((0, 0), str(mark.number), font)[2:]
        plate = (width + 2 * PADDING, height + 2 * PADDING)
        x = max(0, min(left, picture.width - plate[0]))
        y = max(0, min(top - plate[1] if top >= plate[1] else bottom, picture.height - plate[1]))
        draw.rectangle((x, y, x + plate[0], y + plate[1]), fill=color)
        draw.text((x + PADDING, y + PADDING), str(mark.number), "white", font)
    return _packed(picture)


def placed(call: Call, marks: tuple[Mark, ...]) -> Call:
    """The call with the place of the element that it names by its number. Raises RefusedCall for one there is not."""
    if call.name not in MARKED or "mark" not in call.arguments:
        return call
    number = call.arguments["mark"]
    found = next((mark for mark in marks if mark.number == number and not isinstance(number, bool)), None)
    if found is None:
        there = f"there are 1 to {len(marks)}" if marks else "there is none"
        raise RefusedCall(f"no element on the picture has the number {str(number)[:20]}; {there}")
    rest = {key: value for key, value in call.arguments.items() if key not in ("mark", "x", "y")}
    return Call(call.name, {"x": found.middle[0], "y": found.middle[1], **rest})


def _packed(picture: Image.Image) -> bytes:
    """As a PNG, or as a JPEG of the best quality that is small enough."""
    kinds: list[dict[str, Any]] = [{"format": "PNG", "compress_level": FAST}]
    kinds += [{"format": "JPEG", "quality": quality} for quality in QUALITIES]
    out = io.BytesIO()
    for kind in kinds:
        out = io.BytesIO()
        picture.save(out, **kind)
        if out.tell() <= MOST_BYTES:
            break
    return out.getvalue()


def _is_finite(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and abs(value) < 1e6
