"""What a model sees in pictures, with a memory of what was looked at lately: its pixels as its processor makes them.

The tower that looks is the caller's; it is frozen, so what it saw of a picture stays true.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from turnwise.errors import ModelError
from turnwise.pictures.reading import pixels_of

MOST_BYTES = 2**30
"""Of what is remembered; what was not needed for longest goes first."""


class Sized(Protocol):
    @property
    def nbytes(self) -> int: ...


Seen = TypeVar("Seen", bound=Sized)


class PictureFeatures(Generic[Seen]):
    """What is seen in pictures, by their hash. ``look`` makes it of what the model's own processor makes of one."""

    def __init__(self, folder: Path, look: Callable[[Mapping[str, Any]], Seen]) -> None:
        self._process = _processor(folder)
        self._look = look
        self._seen: OrderedDict[str, Seen] = OrderedDict()
        self._bytes = 0
        self._lock, self._looking = threading.Lock(), threading.Lock()

    def of(self, sha256: str, data: Callable[[], bytes]) -> Seen:
        """What is seen in a picture; ``data`` gives its bytes where it was not looked at lately. Raises what that
        raises, and PictureRefused. One is looked at at a time; what is remembered waits for none."""
        if (found := self._remembered(sha256)) is not None:
            return found
        with self._looking:
            if (found := self._remembered(sha256)) is not None:
                return found
            found = self._look(self._process(images=[[pixels_of(data())]], return_tensors="np"))
            with self._lock:
                self._seen[sha256] = found
                self._bytes += found.nbytes
                while self._bytes > MOST_BYTES and len(self._seen) > 1:
                    self._bytes -= self._seen.popitem(last=False)[1].nbytes
            return found

    def _remembered(self, sha256: str) -> Seen | None:
        with self._lock:
            if sha256 in self._seen:
                self._seen.move_to_end(sha256)
            return self._seen.get(sha256)


def _processor(folder: Path) -> Any:
    from transformers import AutoImageProcessor  # it brings torch, which nobody else who imports this has

    try:
        return AutoImageProcessor.from_pretrained(folder)
    except (OSError, ValueError, KeyError, ImportError) as e:
        raise ModelError(f"the picture processor in {folder} cannot be read: {e}") from e
