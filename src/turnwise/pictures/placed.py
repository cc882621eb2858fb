"""Where pictures stand in token ids, and ids that tell apart what different pictures show. Pure functions.

A picture stands in a prompt as placeholder ids, which are the same whatever it shows. Two prompts with these ids have a
beginning in common only as far as their pictures are the same: `keys_of` is what has to be compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

Key = int
"""An id, or a negative number that only one place of one picture has."""


@dataclass(frozen=True, slots=True)
class PlacedPicture:
    """The picture with this SHA-256 (hex) stands at ``ids[start:end]`` of a prompt; where these ids are ``placeholder``
    the model sees it, and the rest are words around it.

    ``width`` and ``height`` are its own in pixels, ``shown_width`` and ``shown_height`` those that the model's
    processor scales it to.
    """

    sha256: str
    start: int
    end: int
    placeholder: int
    width: int
    height: int
    shown_width: int
    shown_height: int

    def places(self, ids: Sequence[int]) -> list[int]:
        """The positions in ``ids`` where the model sees it, in order."""
        return [at for at in range(self.start, self.end) if ids[at] == self.placeholder]

    def moved(self, by: int) -> PlacedPicture:
        return replace(self, start=self.start + by, end=self.end + by)


@dataclass(frozen=True, slots=True)
class ShownPicture:
    """A placed picture with its file's bytes, as an engine is sent it."""

    placed: PlacedPicture
    data: bytes


def keys_of(ids: Sequence[int], pictures: Iterable[PlacedPicture]) -> list[Key]:
    """The ids, with a number in place of each placeholder that only this place of this picture has."""
    keys = list(ids)
    for picture in pictures:
        which = int(picture.sha256, 16) << 32
        for nth, at in enumerate(picture.places(ids)):
            keys[at] = -1 - (which | nth)
    return keys


def inserted(pictures: Sequence[PlacedPicture], at: int, count: int) -> tuple[PlacedPicture, ...]:
    """The pictures of a prompt into which so many ids are put at this offset, which is never within a picture."""
    return tuple(p.moved(count) if p.start >= at else p for p in pictures)


def without(pictures: Sequence[PlacedPicture], spans: Iterable[tuple[int, int]]) -> tuple[PlacedPicture, ...]:
    """The same where the ids of these spans are taken out, which have no picture in them."""
    gone = list(spans)
    return tuple(p.moved(-sum(end - start for start, end in gone if end <= p.start)) for p in pictures)


def misplaced(ids: Sequence[int], pictures: Sequence[PlacedPicture], features: Sequence[int]) -> str | None:
    """Why pictures that are seen as so many ids each do not fit these ids; None where they do."""
    last = 0
    for picture, count in zip(pictures, features, strict=True):
        if not last <= picture.start < picture.end <= len(ids):
            return f"a picture stands at {picture.start} to {picture.end} of {len(ids)} ids, or within another one"
        if (found := len(picture.places(ids))) != count:
            return f"a picture has {found} placeholders, and the model sees it as {count}"
        last = picture.end
    return None


def as_record(picture: PlacedPicture) -> dict[str, Any]:
    """Its fields by name, as a row of the journal has them."""
    return {name: getattr(picture, name) for name in picture.__slots__}
