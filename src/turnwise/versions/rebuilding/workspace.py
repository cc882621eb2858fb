"""Where versions are rebuilt: a folder of the home in which nothing serves, and which a crash leaves as it is.

It holds the version that is built upon and those that are done already. What is done is found again by a digest of all
that it was made of; anything else begins anew.
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from turnwise.errors import PlaceTaken
from turnwise.files import new_directory, put_in_place, write_atomically
from turnwise.training.publish import version_dir
from turnwise.types import BASE_VERSION

FOLDER = "rebuilding"


@dataclass
class DoneUpdate:
    """An update that is done: ``number`` None where nothing came of it. ``inputs``: a digest of what it was made of."""

    batch: int
    inputs: str
    number: int | None
    gate: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    turns: list[str] = field(default_factory=list)
    dropped: dict[str, str] = field(default_factory=dict)
    created_at: float = 0.0


class Workspace:
    """The folder of one rebuilding. One process works with it at a time."""

    def __init__(self, home: Path) -> None:
        self.home = home / FOLDER
        self.versions = self.home / "versions"
        self._file = self.home / "done.json"
        self._lock = FileLock(home / "rebuilding.lock")
        self.first = 0
        self.start = BASE_VERSION
        self.done: list[DoneUpdate] = []

    def lock(self) -> None:
        """Raises PlaceTaken where another process works with it."""
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise PlaceTaken("another `turnwise forget --retrain` is at work in this home; wait for it") from None

    def unlock(self) -> None:
        self._lock.release()

    def begin_or_go_on(self, start: int, source: Path | None, free: int) -> None:
        """Go on with what is there, if it stands on ``start`` and its numbers are still free; else begin anew.

        ``source``: the folder of the version that is built upon.
        ``free``: the first number that no version has.
        """
        if self._read(start) and self.first >= free:
            return
        self.drop()
        self.home.mkdir(mode=0o700, parents=True)
        self.versions.mkdir()
        if source is not None:
            _copy(source, version_dir(self.versions, start))
        self.start, self.first, self.done = start, free, []
        self._write()

    def add(self, one: DoneUpdate) -> None:
        """An update is done, and its folder is in place."""
        self.done.append(one)
        self._write()

    def keep_only(self, count: int) -> None:
        """Take back what was done behind the first ``count`` updates."""
        for one in self.done[count:]:
            if one.number is not None:
                shutil.rmtree(version_dir(self.versions, one.number), ignore_errors=True)
        self.done = self.done[:count]
        self._write()

    def move_out(self, versions: Path) -> None:
        """Put the folders of what is done where versions belong."""
        for one in self.done:
            if one.number is None:
                continue
            versions.mkdir(parents=True, exist_ok=True)
            put_in_place(version_dir(self.versions, one.number), version_dir(versions, one.number))

    def drop(self) -> None:
        """Forget all of it."""
        self._file.unlink(missing_ok=True)  # first: what is left without it is nothing to go on with
        shutil.rmtree(self.home, ignore_errors=True)

    def _read(self, start: int) -> bool:
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            told = json.loads(self._file.read_text(encoding="utf-8"))
            if told["start"] != start:
                return False
            done = [DoneUpdate(**one) for one in told["done"]]
            if all(n is None or version_dir(self.versions, n).is_dir() for n in (one.number for one in done)):
                self.start, self.first, self.done = start, int(told["first"]), done
                return True
        return False

    def _write(self) -> None:
        told = {"start": self.start, "first": self.first, "done": [asdict(one) for one in self.done]}
        write_atomically(self._file, json.dumps(told).encode())


def _copy(source: Path, target: Path) -> None:
    """The folder once more, of the same files where the system has links: nothing is written to in either place."""
    with new_directory(target) as folder:
        for file in source.iterdir():
            try:
                os.link(file, folder / file.name)
            except OSError:
                shutil.copyfile(file, folder / file.name)
