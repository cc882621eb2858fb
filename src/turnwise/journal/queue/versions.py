"""Policy versions: which there are, which one serves, and going back to an earlier one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, func, select, update

from turnwise.errors import JournalError
from turnwise.journal import schema
from turnwise.journal.clocks import set_meta
from turnwise.journal.packing import pack_json, unpack_json
from turnwise.journal.queue.batches import Batches
from turnwise.journal.queue.serving import last_number, next_in_line, serving
from turnwise.journal.rollouts.claiming import learned_from
from turnwise.journal.schema import NOT_SERVING
from turnwise.journal.store import Store
from turnwise.types import BASE_VERSION, PolicyVersion, TurnState

B, V, T, D = schema.batches.c, schema.versions.c, schema.turns.c, schema.verdicts.c
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

    def learned_from(self, number: int) -> dict[str, Any]:
        """What its update had of each stream, as far as the record of it is kept."""
        with self._store.reading() as c:
            return learned_from(c, number)

    def all(self) -> list[PolicyVersion]:
        """All versions, oldest first."""
        with self._store.reading() as c:
            return [_version(row) for row in c.execute(_WITH_SOURCE.order_by(V.number))]

    def verdicts_on(self, number: int) -> dict[str, int]:
        """How many verdicts there are on the turns that a version served: of judges, and of the person."""
        by_person = D.judge == "person"
        query = select(by_person, D.score, func.count()).join_from(schema.verdicts, schema.turns, D.turn_id == T.id)
        found: dict[str, int] = dict.fromkeys(("praised", "blamed", "neutral", "person_praised", "person_blamed"), 0)
        with self._store.reading() as c:
            for person, score, n in c.execute(query.where(T.version == number).group_by(by_person, D.score)):
                kind = {1: "praised", -1: "blamed"}.get(score, "neutral")
                name = f"person_{kind}" if person else kind
                if name in found:
                    found[name] += n
        return found

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
            self._serve(c, number)

    def _serve(self, c: Connection, number: int) -> None:
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

    def promote(self, number: int, reason: str) -> int:
        """Make a published version the serving one, and keep why; gives the number of the one that served until then.

        Raises JournalError as `serve` does, and where it serves already.
        """
        with self._store.transaction() as c:
            before = serving(c)
            if before == number:
                raise JournalError(f"version {number} serves already")
            self._serve(c, number)
            said = {"version": number, "before": before, "reason": reason, "at": self._store.clock()}
            c.execute(schema.promotions.insert().values(said))
            self._store.log(c, "version", None, {"version": number, "promoted_from": before, "reason": reason})
            return before

    def promote_held(self, batch: int, version: PolicyVersion, reason: str, put_in_place: Callable[[], None]) -> int:
        """Publish what the gate refused of a batch, and let it serve; gives the number of what served until then.

        Its turns that still wait are trained by that. ``put_in_place`` gives its folder the name, last.
        """
        with self._store.transaction() as c:
            before, now = serving(c), self._store.clock()
            figures = {"metrics": pack_json(version.metrics), "gate": pack_json(version.gate)}
            told = {"number": version.number, "parent": version.parent, "path": version.path, "batch_id": batch}
            times = {"created_at": version.created_at, "published_at": now}
            turns = {"turn_ids": pack_json(sorted(version.turn_ids))}
            c.execute(schema.versions.insert().values(told | times | turns | figures | {"serve_seq": next_in_line(c)}))
            c.execute(update(schema.batches).where(B.id == batch).values(state="done", version=version.number))
            waiting = select(T.id).where(T.id.in_(version.turn_ids), schema.READY)
            for turn_id in c.execute(waiting).scalars().all():
                self._store.move(c, turn_id, TurnState.LEASED, batch_id=batch)
                self._store.move(c, turn_id, TurnState.TRAINED)
            self._serve(c, version.number)
            said = {"version": version.number, "before": before, "reason": reason, "at": now}
            c.execute(schema.promotions.insert().values(said))
            set_meta(c, "last_version", last_number(c))
            self._store.log(c, "version", None, {"version": version.number, "promoted_from": before, "reason": reason})
            put_in_place()
            return before

    def promotions(self) -> list[dict[str, Any]]:
        """Which versions a person made the serving one, oldest first: `version`, `before`, `reason`, `at`."""
        columns = schema.promotions.c
        wanted = select(columns.version, columns.before, columns.reason, columns.at).order_by(columns.id)
        with self._store.reading() as c:
            return [dict(row) for row in c.execute(wanted).mappings()]

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
