"""Pictures as files of the home, each once under the SHA-256 of its bytes, and durable before any row names it.

What is read is looked at again: a file that was changed or lost is refused, never trained on.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from turnwise.errors import PictureLost
from turnwise.files import write_atomically
from turnwise.patterns import anchored

_NAME = anchored(r"[0-9a-f]{64}\Z")


class PictureStore:
    """The folder ``pictures`` of a home. Safe to use from several threads and processes."""

    def __init__(self, home: Path) -> None:
        self.folder = home / "pictures"

    def keep(self, sha256: str, data: bytes) -> None:
        """Have the bytes under their hash, on disk when this returns."""
        path = self.folder / sha256
        if path.exists() and path.read_bytes() == data:
            return
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(path, data)

    def read(self, sha256: str) -> bytes:
        """The bytes of a picture. Raises PictureLost where they are gone, or others by now."""
        short = sha256[:12]
        try:
            data = (self.folder / sha256).read_bytes()
        except FileNotFoundError as e:
            raise PictureLost(f"the picture {short}… is not in {self.folder} any more") from e
        except OSError as e:
            raise PictureLost(f"the picture {short}… in {self.folder} cannot be read: {e.strerror}") from e
        if hashlib.sha256(data).hexdigest() != sha256:
            raise PictureLost(f"the picture {short}… in {self.folder} is not what was served: its file was changed")
        return data

    def share(self, other: PictureStore) -> None:
        """Have all that another home has, as the same files where the system has links: nothing is written to them."""
        names = other.all()
        if names:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in names:
            target = self.folder / name
            if target.exists():
                continue
            with suppress(FileNotFoundError):  # forgotten meanwhile
                try:
                    os.link(other.folder / name, target)
                except OSError:
                    shutil.copyfile(other.folder / name, target)

    def all(self) -> list[str]:
        """The hashes of all that are kept."""
        if not self.folder.is_dir():
            return []
        return sorted(file.name for file in self.folder.iterdir() if _NAME.match(file.name))

    def drop_all_but(self, used: Collection[str], among: Sequence[str]) -> int:
        """Delete those ``among`` the kept ones that are not ``used``; gives their number."""
        going = [sha256 for sha256 in among if sha256 not in used]
        for sha256 in going:
            (self.folder / sha256).unlink(missing_ok=True)
        return len(going)
