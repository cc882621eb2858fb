"""The points of a run, one JSON object a line: a run that was ended goes on with the first day that is not whole.

The first line says what they are points of. A last line that was cut off, and the lines of a day that was not played to
its end, are taken out before more is written.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from turnwise.bench.metaclaw.data import Workday
from turnwise.bench.metaclaw.play import RoundPoint
from turnwise.errors import BenchDataError
from turnwise.files import write_atomically

MOST_BYTES = 64 << 20


class PlayedWith(msgspec.Struct, frozen=True):
    """What points are of: who played, which days, and with which settings."""

    agent: str
    data: str
    settings: dict[str, str | int | float | bool]


class PointsFile:
    """The points of one agent. Raises BenchDataError for a file of another run."""

    def __init__(self, path: Path, played_with: PlayedWith) -> None:
        self._path, self._played_with = path, played_with

    def mended(self, days: Sequence[Workday]) -> dict[str, list[RoundPoint]]:
        """The points of those of these days that are whole, by the day. The file has no others of these from now on,
        and keeps what it has of other days."""
        lines = self._lines()
        if lines and lines[0] != self._head():
            raise BenchDataError(
                f"{self._path} has points of another run (another model, other days or settings); give another --out"
            )
        by_day: dict[str, list[RoundPoint]] = {}
        chosen = {day.id for day in days}
        for line in lines[1:]:
            try:
                point = msgspec.json.decode(line, type=RoundPoint)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue  # cut off in the middle: its day is not whole, then
            by_day.setdefault(point.day, []).append(point)
        whole = {
            day.id: by_day[day.id]
            for day in days
            if [point.round for point in by_day.get(day.id, [])] == [r.id for r in day.rounds if r.aside is None]
        }
        others = [point for day, points in by_day.items() if day not in chosen for point in points]
        mine = [point for points in whole.values() for point in points]
        kept = [self._head(), *(msgspec.json.encode(point) for point in (*others, *mine))]
        if lines != kept:
            write_atomically(self._path, b"".join(line + b"\n" for line in kept), 0o644)
        return whole

    def add(self, point: RoundPoint) -> None:
        """Append a point; it is on disk when this returns."""
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(point) + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def _head(self) -> bytes:
        return msgspec.json.encode(self._played_with)

    def _lines(self) -> list[bytes]:
        try:
            with self._path.open("rb") as file:
                content = file.read(MOST_BYTES)
        except FileNotFoundError:
            return []
        return content.split(b"\n")[:-1] if content.endswith(b"\n") else content.split(b"\n")
