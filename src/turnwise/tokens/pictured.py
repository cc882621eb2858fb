"""Pictures among the pieces of a prompt: how a message has them, and ids that say where in them each stands."""

from __future__ import annotations

from typing import Any

from renderers.base import Message, MultiModalData, PlaceholderRange, RenderedTokens

from turnwise.tokens.chatml import RenderedPieces

IMAGE = "image"
"""What `renderers` calls this kind of media."""
SCHEME = "sha256:"
"""How the address of a picture begins that was taken in: the rest is its hash."""


def taken(image: dict[str, Any]) -> tuple[str, int, int]:
    """Hash, width and height of a picture that was taken in. Raises ValueError for any other."""
    url, width, height = str(image.get("url", "")), image.get("width"), image.get("height")
    if not url.startswith(SCHEME) or not isinstance(width, int) or not isinstance(height, int):
        raise ValueError("a picture stands in it that was not taken in: here they are read in requests alone")
    return url.removeprefix(SCHEME), width, height


def parts_of(message: Message) -> list[str | dict[str, Any]] | None:
    """Words, and pictures as they were taken in: their hash and size. None of a message without a picture."""
    given: Any = message.get("parts")
    if not given or not any(part.get("type") == "image_url" for part in given):
        return None
    return [part["image_url"] if part.get("type") == "image_url" else str(part.get("text", "")) for part in given]


class SeeingPieces(RenderedPieces):
    """Collects ids with the message each belongs to, and the pictures among them."""

    def __init__(self, messages: list[Message]) -> None:
        super().__init__(messages)
        self._media = MultiModalData(mm_hashes={IMAGE: []}, mm_placeholders={IMAGE: []}, mm_items={IMAGE: []})

    def see(self, ids: list[int], index: int, sha256: str, about: dict[str, int]) -> None:
        self._media.mm_hashes[IMAGE].append(sha256)
        self._media.mm_placeholders[IMAGE].append(PlaceholderRange(offset=len(self.ids), length=len(ids)))
        self._media.mm_items[IMAGE].append(about)
        self.add(ids, index)

    def result(self) -> RenderedTokens:
        rendered = super().result()
        rendered.multi_modal_data = self._media if self._media.mm_hashes[IMAGE] else None
        return rendered
