"""Rebuilt versions: those that take the place of versions which learned from what was forgotten.

A rebuilding that was begun is noted under the session's id, with no text, until its versions serve: a session that is
gone has nothing else by which it could be finished.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from turnwise.journal import schema
from turnwise.journal.clocks import M, set_meta
from turnwise.journal.packing import pack_json
from turnwise.journal.prefixes import find_session
from turnwise.journal.queue.batches import Batches
from turnwise.journal.queue.serving import last_number, next_in_line
from turnwise.journal.rollouts.claiming import groups_ready_again
from turnwise.journal.schema import NOT_SERVING
from turnwise.journal.skills.forgetting import texts_made_from
from turnwise.journal.store import Store
from turnwise.types import BASE_VERSION, REVIVABLE, Batch, Exclusion, PolicyVersion, TurnState

T, B, V, U = schema.turns.c, schema.batches.c, schema.versions.c, schema.skill_uses.c
S, P = schema.sessions.c, schema.provenance.c

UNLEARNED = (TurnState.WAITING, TurnState.JUDGING, TurnState.JUDGED, TurnState.READY)
"""Where a turn may stand before anything learns from it."""
NOTE = "rebuilding|"
"""Facts of the journal with names like this say which session is to be rebuilt without, and what learned from it."""


@dataclass
class RebuildNote:
    """What has to be known of a forgotten session until its versions are rebuilt.

    ``versions``: those that learned from it, or that the gate examined on it. ``turns``: turns of other sessions whose
    prompts hold a skill that was made of it. ``with_branches``: whether sessions that branched off are to go as well.
    """

    session: str
    versions: list[int] = field(default_factory=list)
    turns: list[str] = field(default_factory=list)
    with_branches: bool = False

    def joined(self, other: RebuildNote) -> RebuildNote:
        """What either of two notes on the same session says."""
        return RebuildNote(
            self.session,
            sorted({*self.versions, *other.versions}),
            sorted({*self.turns, *other.turns}),
            self.with_branches or other.with_branches,
        )


@dataclass(frozen=True, slots=True)
class RebuiltUpdate:
    """What came of an update that was done again: ``version`` None where its gate refused it, or nothing was left."""

    batch: int
    old: int
    version: PolicyVersion | None
    gate: dict[str, Any]
    dropped: dict[str, str] = field(default_factory=dict)


class Rebuilding:
    """The journal's side of rebuilding versions."""

    def __init__(self, store: Store, batches: Batches) -> None:
        self._store = store
        self._batches = batches

    def unfinished(self) -> list[RebuildNote]:
        """Rebuildings that were begun and have not ended."""
        with self._store.reading() as c:
            found = c.execute(select(M.value).where(M.name >= NOTE, M.name < f"{NOTE}\U0010ffff").order_by(M.name))
            return [RebuildNote(**json.loads(value)) for value in found.scalars()]

    def meant(self, given: str) -> str:
        """The session with this id or beginning, of those that are there and those whose rebuilding was begun.

        Raises JournalError where there is none, AmbiguousId where there are several.
        """
        begun = [note.session for note in self.unfinished()]
        with self._store.reading() as c:
            return find_session(c, given, begun)

    def noted(self, session: str) -> RebuildNote | None:
        """The rebuilding that was begun for the session with exactly this id."""
        return next((note for note in self.unfinished() if note.session == session), None)

    def is_there(self, session: str) -> bool:
        """Whether anything is left of the session with exactly this id."""
        with self._store.reading() as c:
            found = select(S.id).where(S.id == session).union(select(P.session_id).where(P.session_id == session))
            return c.execute(found).first() is not None

    def begin(self, note: RebuildNote) -> None:
        """Note it, before anything is deleted."""
        with self._store.transaction() as c:
            set_meta(c, NOTE + note.session, json.dumps(asdict(note)))

    def with_skills_of(self, sessions: Collection[str]) -> list[str]:
        """Turns of other sessions with a skill in their prompts that was made of these."""
        used = select(U.turn_id).distinct().join_from(schema.skill_uses, schema.turns, T.id == U.turn_id)
        with self._store.reading() as c:
            made = [version for _, version in texts_made_from(c, list(sessions))]
            wanted = used.where(U.version.in_(made), ~U.withheld, T.session_id.not_in(sessions))
            return sorted(c.execute(wanted).scalars())

    def free_number(self) -> int:
        """The first number that no version was ever given."""
        with self._store.reading() as c:
            return last_number(c) + 1

    def publish(
        self,
        place: Batch,
        session: str,
        done: Sequence[RebuiltUpdate],
        start: int,
        gone: Collection[int],
        left_out: Collection[str],
        put_in_place: Callable[[], None],
    ) -> None:
        """Let the rebuilt versions take the place of the others, in one transaction: all of it, or nothing.

        ``start``: the version that they stand on, which serves where none came of them. ``gone``: versions whose
        weights go. ``left_out``: turns that none of them learned from, and none is to. ``put_in_place`` gives folders
        their names, last. Raises LeaseLost.
        """
        with self._store.transaction() as c:
            self._batches.hold(c, place)
            now, serves = self._store.clock(), start
            for one in done:
                c.execute(update(schema.versions).where(V.batch_id == one.batch).values(batch_id=None))
                if one.version is None:
                    self._give_samples_back(c, one)
                    continue
                serves = one.version.number
                self._insert(c, one, one.version, now)
            for turn_id in left_out:
                self._leave_out(c, turn_id)
            c.execute(update(schema.versions).where(V.number.in_(gone)).values(pruned_at=now, serve_seq=NOT_SERVING))
            self._serve(c, serves)
            self._batches.put_back(c, place.id)
            set_meta(c, "last_version", last_number(c))
            _end(c, session)
            self._store.log(c, "version", None, {"rebuilt": [one.batch for one in done], "gone": sorted(gone)})
            put_in_place()

    def _insert(self, c: Connection, one: RebuiltUpdate, version: PolicyVersion, now: float) -> None:
        figures = {"metrics": pack_json(version.metrics), "gate": pack_json(version.gate)}
        c.execute(
            insert(schema.versions).values(
                number=version.number,
                parent=version.parent,
                path=version.path,
                batch_id=one.batch,
                created_at=version.created_at,
                published_at=now,
                serve_seq=next_in_line(c),
                turn_ids=pack_json(sorted(version.turn_ids)),
                **figures,
            )
        )
        c.execute(update(schema.batches).where(B.id == one.batch).values(version=version.number, **figures))

    def _give_samples_back(self, c: Connection, one: RebuiltUpdate) -> None:
        """Nothing came of the batch this time: what is left of it may be learned from once more."""
        ended = {"state": "refused", "version": None, "gate": pack_json(one.gate)}
        c.execute(update(schema.batches).where(B.id == one.batch).values(ended))
        turns = c.execute(select(T.id).where(T.batch_id == one.batch, schema.TRAINED)).scalars().all()
        groups_ready_again(self._store, c, turns)
        for turn_id in turns:
            self._store.move(c, turn_id, TurnState.JUDGED)
            self._store.move(c, turn_id, TurnState.READY, batch_id=None)

    def _leave_out(self, c: Connection, turn_id: str) -> None:
        """A turn that no version learned from any more, and that none is to learn from."""
        row = c.execute(select(T.state, T.exclusion).where(T.id == turn_id)).one_or_none()
        if row is None:
            return
        if row.state == TurnState.TRAINED or (row.state == TurnState.EXCLUDED and row.exclusion in REVIVABLE):
            self._store.move(c, turn_id, TurnState.JUDGED)
        elif row.state not in UNLEARNED:
            return
        self._store.move(c, turn_id, TurnState.EXCLUDED, exclusion=Exclusion.FORGOTTEN, batch_id=None)

    @staticmethod
    def _serve(c: Connection, number: int) -> None:
        if number == BASE_VERSION:
            c.execute(update(schema.versions).values(serve_seq=NOT_SERVING))
        else:
            c.execute(update(schema.versions).where(V.number == number).values(serve_seq=next_in_line(c)))


def _end(c: Connection, session: str) -> None:
    c.execute(delete(schema.meta).where(M.name == NOTE + session))
