"""Policy versions: which there are, which one serves, and going back to an earlier one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import select, update

from turnwise.errors import JournalError
from turnwise.journal import schema
from turnwise.journal.packing import unpack_json
from turnwise.journal.queue.batches import Batches
from turnwise.journal.queue.serving import next_in_line, serving
from turnwise.journal.schema import NOT_SERVING
from turnwise.journal.store import Store
from turnwise.types import BASE_VERSION, PolicyVersion

B, V = schema.batches.c, schema.versions.c
_WITH_SOURCE = select(schema.versions, B.source).outerjoin(schema.batches, B.id == V.batch_id)


class Versions:
    """Published versions. They are published by `Batches.finish`."""

    def __init__(self, store: Store, batches: Batches) -> None:
        self._store = store
        self._batches = batches

    def latest(self) -> int:
        """The number of the serving version; 0 is the base model."""
        with self._store.reading() as c:
            return serving(c)

    def get(self, number: int) -> PolicyVersion | None:
        """What is known of a version, or None."""
        with self._store.reading() as c:
            row = c.execute(_WITH_SOURCE.where(V.number == number)).one_or_none()
            return None if row is None else _version(row)

    def all(self) -> list[PolicyVersion]:
        """All versions, oldest first."""
        with self._store.reading() as c:
            return [_version(row) for row in c.execute(_WITH_SOURCE.order_by(V.number))]

    def newest(self, limit: int) -> list[int]:
        """The numbers of the newest versions that can be served, oldest first."""
        newest = select(V.number).where(V.pruned_at.is_(None)).order_by(V.number.desc()).limit(limit)
        with self._store.reading() as c:
            return list(reversed(c.execute(newest).scalars().all()))

    def serve(self, number: int) -> None:
        """Make an earlier version, or the base model (0), the serving one again. Raises JournalError for no version.

        A batch under way would be published on top of the version that is left: its samples are ready again instead.
        """
        with self._store.transaction() as c:
            if number == BASE_VERSION:  # it has no row: it serves where no version does
                c.execute(update(schema.versions).values(serve_seq=NOT_SERVING))
            elif not c.execute(
                update(schema.versions).where(V.number == number).values(serve_seq=next_in_line(c))
            ).rowcount:
                raise JournalError(f"there is no published version {number}; see `turnwise versions list`")
            elif c.execute(select(V.pruned_at).where(V.number == number)).scalar_one() is not None:
                raise JournalError(f"version {number} was pruned: its weights are deleted, so it cannot serve again")
            for batch in c.execute(select(B.id).where(B.state == "open")).scalars().all():
                self._batches.put_back(c, batch)

    @contextmanager
    def unrecorded(self) -> Iterator[set[int]]:
        """Numbers that were kept for a batch and have no version; none is recorded while they are looked at."""
        with self._store.transaction() as c:
            kept = c.execute(select(B.version).where(B.version.is_not(None), B.version.not_in(select(V.number))))
            yield set(kept.scalars())


def _version(row: Any) -> PolicyVersion:
    return PolicyVersion(
        number=row.number,
        parent=row.parent,
        path=row.path,
        created_at=row.created_at,
        metrics=unpack_json(row.metrics),
        gate=unpack_json(row.gate),
        turn_ids=unpack_json(row.turn_ids) if row.turn_ids else [],
        pruned=row.pruned_at is not None,
        source=unpack_json(row.source) if row.source else None,
    )
