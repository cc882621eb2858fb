"""What came of asking the failing turns of a new skill again, once for each version of a skill: figures, and no text of
anybody's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Connection, select

from turnwise.journal import schema
from turnwise.journal.dialects.sql import upsert
from turnwise.journal.store import Store

R = schema.replays.c

ReplayState = Literal["passed", "failed", "unclear", "waits"]


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """How many turns went ``better``, ``worse`` and the ``same`` with a skill as without it, and of how many nothing
    could be told.

    ``state``: "passed" and "failed" say whether it may be used, "unclear" that nothing could be judged, "waits" that
    the engine did not answer and is asked again. ``why`` is a sentence in our words.
    """

    state: ReplayState
    why: str
    better: int = 0
    worse: int = 0
    same: int = 0
    unclear: int = 0
    tries: int = 1


class SkillReplays:
    """The results, by the version of a skill."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def of(self, version: int) -> ReplayResult | None:
        """The result of a version; None where its turns were never asked again."""
        with self._store.reading() as c:
            row = c.execute(select(schema.replays).where(R.version == version)).one_or_none()
            return None if row is None else _read(row)

    def waiting(self) -> dict[int, ReplayResult]:
        """The versions whose turns are to be asked again later."""
        with self._store.reading() as c:
            rows = c.execute(select(schema.replays).where(R.state == "waits").order_by(R.version)).all()
            return {row.version: _read(row) for row in rows}

    def note(self, version: int, result: ReplayResult) -> None:
        """What came of a version; it takes the place of what was noted before."""
        with self._store.transaction() as c:
            write_replay(c, version, result, self._store.clock())


def write_replay(c: Connection, version: int, result: ReplayResult, at: float) -> None:
    """Note a result within a transaction of the caller's."""
    upsert(
        c, schema.replays, {name: getattr(result, name) for name in _FIELDS} | {"version": version, "updated_at": at}
    )


_FIELDS: Sequence[str] = ("state", "why", "better", "worse", "same", "unclear", "tries")


def _read(row: Any) -> ReplayResult:
    return ReplayResult(**{name: getattr(row, name) for name in _FIELDS})
