"""Pictures of a file of conversations: in a data URL, or in files beside it, each looked at whole before it is kept.

A file of conversations may be anybody's: of this machine it reaches pictures in its own folder, and nothing else.
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path, PurePosixPath

from turnwise.errors import PictureRefused
from turnwise.pictures.reading import MOST_BYTES, data_of_url, read_picture, sha256_of_bytes
from turnwise.pictures.store import PictureStore
from turnwise.tokens.smolvlm import SCHEME
from turnwise.types import Image

_ADDRESS = ("http:", "https:", "file:", "ftp:", "blob:")


class FilePictures:
    """Pictures that lines in ``folder`` name. ``store`` keeps them by their hash; None: they are looked at alone."""

    def __init__(self, folder: Path, store: PictureStore | None) -> None:
        self._folder, self._store = folder.resolve(), store
        self._sizes: dict[str, tuple[int, int]] = {}
        self._named: dict[str, str] = {}
        self._all = hashlib.sha256()

    @property
    def digest(self) -> str:
        """Of all that were taken, in their order; empty where there are none."""
        return self._all.hexdigest() if self._sizes else ""

    def take(self, image: Image) -> Image:
        """The picture as prompts name it: by its hash, with its size. Raises PictureRefused."""
        sha256 = self._named.get(image.url) or self._keep(image.url)
        self._all.update(sha256.encode())
        width, height = self._sizes[sha256]
        return Image(f"{SCHEME}{sha256}", {"width": width, "height": height})

    def _keep(self, url: str) -> str:
        inside = url[:5].lower() == "data:"
        data = data_of_url(url) if inside else self._read(url)
        sha256 = sha256_of_bytes(data)
        if sha256 not in self._sizes:
            picture = read_picture(data)
            self._sizes[sha256] = picture.width, picture.height
            if self._store is not None:
                self._store.keep(sha256, data)
        if not inside:
            self._named[url] = sha256
        return sha256

    def _read(self, name: str) -> bytes:
        """A file in the folder, without a way out of it: no link is followed out, no device is opened."""
        shown = name[:80]
        if name.lower().startswith(_ADDRESS):
            raise PictureRefused(f"the picture {shown!r} has an address, and none is fetched; save it beside the file")
        if name.startswith(SCHEME):
            raise PictureRefused(f"the picture {shown!r} is named by its hash alone; write it out, or name its file")
        place = PurePosixPath(name)
        if not name or "\0" in name or "\\" in name or place.is_absolute() or ".." in place.parts:
            raise PictureRefused(
                f"the picture {shown!r} is no path in the folder of the file; write it as pictures/1.png"
            )
        try:
            path = (self._folder / place).resolve()
            if not path.is_relative_to(self._folder):
                raise PictureRefused(f"the picture {shown!r} is a link out of the folder of the file; put it in there")
            opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
            with os.fdopen(opened, "rb") as file:
                if not stat.S_ISREG(os.fstat(opened).st_mode):
                    raise PictureRefused(f"the picture {shown!r} is no file")
                return file.read(MOST_BYTES + 1)
        except (OSError, RuntimeError) as e:  # RuntimeError: links that go round
            why = getattr(e, "strerror", None) or e
            raise PictureRefused(f"the picture {shown!r} cannot be read beside the file: {why}") from e
