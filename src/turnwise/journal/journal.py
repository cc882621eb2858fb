"""The journal: the one record through which the loops meet.

`Journal` adds to recording and leases what the command line and the status page read. All calls are synchronous and
short; asynchronous callers run them in a thread.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.dialects.sqlite import insert as upsert

from turnwise.errors import JournalError
from turnwise.journal import schema
from turnwise.journal.queue import Queue
from turnwise.journal.schema import NOT_SERVING, pack_json, unpack_json
from turnwise.types import BASE_VERSION, PolicyVersion, TurnState

S, T, V = schema.sessions.c, schema.turns.c, schema.versions.c


class Journal(Queue):
    """Sessions, turns, next states, verdicts, samples, batches and versions in one SQLite file."""

    # -- versions -----------------------------------------------------------------------------------------------

    def latest_version(self) -> int:
        """The number of the serving version; 0 is the base model."""
        with self.reading() as c:
            return self._serving(c)

    def get_version(self, number: int) -> PolicyVersion | None:
        with self.reading() as c:
            row = c.execute(select(schema.versions).where(V.number == number)).one_or_none()
            if row is None:
                return None
            turn_ids = c.execute(
                select(T.id).where(T.batch_id == row.batch_id, T.state == TurnState.TRAINED).order_by(T.id)
            ).scalars()
            return PolicyVersion(
                number=row.number,
                parent=row.parent,
                path=row.path,
                created_at=row.created_at,
                metrics=unpack_json(row.metrics),
                gate=unpack_json(row.gate),
                turn_ids=list(turn_ids),
            )

    def list_versions(self) -> list[PolicyVersion]:
        """All versions, oldest first."""
        with self.reading() as c:
            numbers = c.execute(select(V.number).order_by(V.number)).scalars().all()
        found = [self.get_version(n) for n in numbers]
        return [v for v in found if v is not None]

    def serve_version(self, number: int) -> None:
        """Make an earlier version, or the base model (0), the serving one again. Raises JournalError for no version.

        A batch under way would be published on top of the version that is left: its samples are ready again instead.
        """
        with self.transaction() as c:
            if number == BASE_VERSION:  # it has no row: it serves where no version does
                c.execute(update(schema.versions).values(served_at=NOT_SERVING))
            elif not c.execute(
                update(schema.versions).where(V.number == number).values(served_at=self.clock())
            ).rowcount:
                raise JournalError(f"there is no published version {number}; see `turnwise versions list`")
            for batch in c.execute(select(schema.batches.c.id).where(schema.batches.c.state == "open")).scalars().all():
                self._release(c, batch)

    # -- status -------------------------------------------------------------------------------------------------

    def set_status(self, loop: str, data: dict[str, Any]) -> None:
        """What a loop says of itself, with the time: its heartbeat."""
        row = {"name": loop, "data": pack_json(data), "updated_at": self.clock()}
        with self.transaction() as c:
            c.execute(upsert(schema.loops).values(row).on_conflict_do_update(index_elements=["name"], set_=row))

    def status(self) -> dict[str, Any]:
        """The figures of `turnwise status`: sessions, turns by state, verdicts, samples, versions, loops."""
        with self.reading() as c:
            turns = dict(c.execute(select(T.state, func.count()).group_by(T.state)).all())
            exclusions = c.execute(
                select(T.exclusion, func.count()).where(T.exclusion.is_not(None)).group_by(T.exclusion)
            )
            verdicts = c.execute(
                select(schema.verdicts.c.judge, schema.verdicts.c.score, func.count()).group_by(
                    schema.verdicts.c.judge, schema.verdicts.c.score
                )
            )
            loops = c.execute(select(schema.loops)).all()
            open_sessions, all_sessions = c.execute(
                select(func.count().filter(S.closed_at.is_(None)), func.count()).select_from(schema.sessions)
            ).one()
            hints = c.execute(
                select(func.count()).select_from(schema.verdicts).where(schema.verdicts.c.hint.is_not(None))
            ).scalar_one()
            now = self.clock()
            return {
                "sessions": {"open": open_sessions, "total": all_sessions},
                "turns": {str(s): turns.get(s, 0) for s in TurnState},
                "excluded": dict(exclusions.all()),
                "verdicts": {f"{judge} {score:+d}": n for judge, score, n in verdicts.all()},
                "hints": hints,
                "samples_ready": turns.get(TurnState.READY, 0),
                "version": {"number": self._serving(c)},
                "versions_published": c.execute(select(func.count()).select_from(schema.versions)).scalar_one(),
                "batches": {
                    str(state): n
                    for state, n in c.execute(
                        select(schema.batches.c.state, func.count()).group_by(schema.batches.c.state)
                    )
                },
                "loops": {
                    row.name: {"seconds_ago": round(now - row.updated_at, 1)} | unpack_json(row.data) for row in loops
                },
            }

    def list_sessions(self, limit: int = 50) -> list[dict[str, Any]]:
        """The sessions last seen, newest first."""
        with self.reading() as c:
            rows = c.execute(
                select(
                    schema.sessions,
                    func.count(T.id).label("turns"),
                    func.count(T.id).filter(T.state == TurnState.TRAINED).label("trained"),
                )
                .outerjoin(schema.turns, T.session_id == S.id)
                .group_by(S.id)
                .order_by(S.last_seen_at.desc())
                .limit(limit)
            ).all()
            return [dict(row._mapping) for row in rows]

    def show_session(self, session_id: str) -> dict[str, Any] | None:
        """One session with its turns, next states and verdicts, in order."""
        with self.reading() as c:
            session = c.execute(select(schema.sessions).where(S.id == session_id)).one_or_none()
            if session is None:
                return None
            turns = []
            for row in c.execute(select(schema.turns).where(T.session_id == session_id).order_by(T.idx)):
                verdicts = c.execute(
                    select(schema.verdicts).where(schema.verdicts.c.turn_id == row.id).order_by(schema.verdicts.c.id)
                ).all()
                turns.append(
                    {
                        "id": row.id,
                        "index": row.idx,
                        "kind": row.kind,
                        "state": row.state,
                        "exclusion": row.exclusion,
                        "version": row.version,
                        "bridged": row.bridged,
                        "finish_reason": row.finish_reason,
                        "prompt_tokens": row.prompt_tokens,
                        "response_tokens": row.response_tokens,
                        "created_at": row.created_at,
                        "added": unpack_json(row.messages),
                        "answer": unpack_json(row.answer) if row.answer else None,
                        "next_state": unpack_json(row.next_state) if row.next_state else None,
                        "verdicts": [
                            {"judge": v.judge, "score": v.score, "hint": v.hint, "reason": v.reason} for v in verdicts
                        ],
                    }
                )
            return dict(session._mapping) | {"turns": turns}
