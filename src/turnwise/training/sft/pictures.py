"""Pictures of a file of conversations: in a data URL, or in files beside it, each looked at whole before it is kept.

A file of conversations may be anybody's: of this machine it reaches pictures in its own folder, and nothing else.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from turnwise.errors import DataError, PictureRefused
from turnwise.files import told_when_full
from turnwise.pictures.reading import MOST_BYTES, data_of_url, read_picture, sha256_of_bytes
from turnwise.pictures.store import PictureStore
from turnwise.tokens.pictured import SCHEME
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
                try:
                    with told_when_full(self._store.folder):
                        self._store.keep(sha256, data)
                except OSError as e:
                    raise DataError(f"pictures cannot be kept in {self._store.folder}: {e.strerror}") from e
        if not inside:
            self._named[url] = sha256
        return sha256

    def _read(self, name: str) -> bytes:
        """A file in the folder. Nothing outside of it is read, and no link in it is followed."""
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
            opened = _opened(self._folder, place.parts)
            try:
                if not stat.S_ISREG(os.fstat(opened).st_mode):
                    raise PictureRefused(f"the picture {shown!r} is no file")
                with os.fdopen(opened, "rb", closefd=False) as file:
                    return file.read(MOST_BYTES + 1)
            finally:
                os.close(opened)
        except OSError as e:
            why = "it, or a folder before it, is a link" if e.errno in (errno.ELOOP, errno.ENOTDIR) else e.strerror
            raise PictureRefused(f"the picture {shown!r} cannot be read beside the file: {why}") from e


def _opened(folder: Path, parts: Sequence[str]) -> int:
    """A descriptor of the file at this path in the folder, each step of it from the one before: whoever puts a link in
    its way meanwhile leads nowhere. Raises OSError."""
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in parts[:-1]:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
            os.close(at)
            at = inner
        return os.open(parts[-1] if parts else ".", os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW, dir_fd=at)
    finally:
        os.close(at)
