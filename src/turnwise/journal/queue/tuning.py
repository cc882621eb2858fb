"""The trainer's place of a home, held by a supervised fine-tuning while it runs.

It is a batch without turns, with what it learns from as its `source`. Only one trainer works in a home: whoever holds
an open batch. Such a batch that its holder let run out is over, and nobody goes on with it: what is done of it stands
in files of its own (`training/sft`), from which the same command begins a new one.
"""

from __future__ import annotations

import uuid
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from turnwise.errors import PlaceTaken
from turnwise.journal import schema
from turnwise.journal.packing import pack_json, unpack_json
from turnwise.journal.queue.batches import Batches, who_holds
from turnwise.journal.queue.serving import serving
from turnwise.journal.store import Store
from turnwise.types import Batch

B = schema.batches.c


class TuningPlace:
    """Taking the place, saying what for, and giving it back. It is kept and published by the calls of `Batches`."""

    def __init__(self, store: Store, batches: Batches) -> None:
        self._store = store
        self._batches = batches

    def refuse_if_taken(self, lease_s: float, run: str | None) -> None:
        """Raises PlaceTaken while a trainer works: before anything long is begun. ``run``: as `take`."""
        with self._store.reading() as c:
            self._left(c, lease_s, run)

    def take(self, worker: str, lease_s: float, run: str) -> Batch:
        """An open batch without turns, on top of the version that serves.

        A batch that a trainer left in the middle goes back: its samples are ready again. Raises PlaceTaken while one
        works. The caller is the only one with the run ``run``: whoever holds the place for that run is dead.
        """
        with self._store.transaction() as c:
            left = self._left(c, lease_s, run)
            if left is not None:
                self._batches.put_back(c, left.id)
            token, parent = uuid.uuid4().hex, serving(c)
            batch_id = c.execute(
                insert(schema.batches)
                .values(
                    state="open",
                    parent=parent,
                    turn_ids=pack_json([]),
                    source=pack_json({"run": run}),
                    created_at=self._store.clock(),
                    attempts=1,
                    lease_owner=worker,
                    lease_token=token,
                    lease_until=self._store.now(c) + lease_s,
                )
                .returning(B.id)
            ).scalar_one()
            return Batch(batch_id, token, parent, [])

    def _left(self, c: Connection, lease_s: float, run: str | None) -> Row[Any] | None:
        """The open batch, if there is one, that nobody holds any more. Raises PlaceTaken where somebody does."""
        left = c.execute(select(schema.batches).where(B.state == "open").order_by(B.id).limit(1)).one_or_none()
        if left is None or not self._batches.is_held(c, left, lease_s):
            return left
        if left.source is not None and run is not None and unpack_json(left.source).get("run") == run:
            return left
        raise PlaceTaken(_who(left))

    def say_source(self, batch: Batch, source: dict[str, Any]) -> None:
        """What the batch learns from, which the version that comes of it keeps. Raises LeaseLost."""
        with self._store.transaction() as c:
            self._batches.hold(c, batch)
            c.execute(update(schema.batches).where(B.id == batch.id).values(source=pack_json(source)))

    def published(self, run: str) -> int | None:
        """The version that came of the run with this id, or None."""
        with self._store.reading() as c:
            done = c.execute(select(B.version, B.source).where(B.source.is_not(None), B.state == "done"))
            return next((row.version for row in done if unpack_json(row.source).get("run") == run), None)


def _who(left: Row[Any]) -> str:
    if left.source is not None:
        file = unpack_json(left.source).get("file")
        of = f" of {file}" if file else ""
        return f"another {who_holds(left)}{of} is at work in this home; wait until it has ended"
    return (
        f"the trainer of this home is in the middle of batch {left.id}; wait until its version serves (`turnwise "
        "status` shows how far it is), or end the server with Ctrl-C: the batch's samples then wait for the next step"
    )
