"""The journal: the one record through which the loops meet.

`Journal` adds to recording and leases what the command line and the status page read. All calls are synchronous and
short; asynchronous callers run them in a thread.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from sqlalchemy import Connection, bindparam, func, literal_column, select, update
from sqlalchemy.dialects.sqlite import insert as upsert

from turnwise.errors import JournalError
from turnwise.journal import prefixes, schema
from turnwise.journal.clocks import boot_id, meta
from turnwise.journal.counts import HINTS, UNRECOGNISED, read_counts, told
from turnwise.journal.queue import Queue
from turnwise.journal.schema import NOT_SERVING, pack_json, unpack_json
from turnwise.messages import history_from_chat
from turnwise.types import BASE_VERSION, Message, PolicyVersion, TurnKind, TurnState

S, T, V = schema.sessions.c, schema.turns.c, schema.versions.c


_FIRST = select(T.messages).where(T.session_id == bindparam("which"), T.kind == TurnKind.MAIN).order_by(T.idx).limit(1)


class Journal(Queue):
    """Sessions, turns, next states, verdicts, samples, batches and versions in one SQLite file."""

    # -- versions -----------------------------------------------------------------------------------------------

    def latest_version(self) -> int:
        """The number of the serving version; 0 is the base model."""
        with self.reading() as c:
            return self.serving(c)

    def get_version(self, number: int) -> PolicyVersion | None:
        with self.reading() as c:
            row = c.execute(select(schema.versions).where(V.number == number)).one_or_none()
            return None if row is None else _version(row)

    def list_versions(self) -> list[PolicyVersion]:
        """All versions, oldest first."""
        with self.reading() as c:
            return [_version(row) for row in c.execute(select(schema.versions).order_by(V.number))]

    def newest_versions(self, limit: int) -> list[int]:
        """The numbers of the newest versions that can be served, oldest first."""
        newest = select(V.number).where(V.pruned_at.is_(None)).order_by(V.number.desc()).limit(limit)
        with self.reading() as c:
            return list(reversed(c.execute(newest).scalars().all()))

    def serve_version(self, number: int) -> None:
        """Make an earlier version, or the base model (0), the serving one again. Raises JournalError for no version.

        A batch under way would be published on top of the version that is left: its samples are ready again instead.
        """
        with self.transaction() as c:
            if number == BASE_VERSION:  # it has no row: it serves where no version does
                c.execute(update(schema.versions).values(serve_seq=NOT_SERVING))
            elif not c.execute(
                update(schema.versions).where(V.number == number).values(serve_seq=self._next_in_line(c))
            ).rowcount:
                raise JournalError(f"there is no published version {number}; see `turnwise versions list`")
            elif c.execute(select(V.pruned_at).where(V.number == number)).scalar_one() is not None:
                raise JournalError(f"version {number} was pruned: its weights are deleted, so it cannot serve again")
            for batch in c.execute(select(schema.batches.c.id).where(schema.batches.c.state == "open")).scalars().all():
                self.release(c, batch)

    # -- status -------------------------------------------------------------------------------------------------

    def set_status(self, loop: str, data: dict[str, Any]) -> None:
        """What a loop says of itself, with the time: its heartbeat."""
        now = {"updated_at": self.clock(), "seen_mono": self.monotonic()}
        row = {"name": loop, "data": pack_json(data)} | now
        with self.transaction() as c:
            c.execute(upsert(schema.loops).values(row).on_conflict_do_update(index_elements=["name"], set_=row))

    def status(self) -> dict[str, Any]:
        """The figures of `turnwise status`: sessions, turns by state, verdicts, samples, versions, loops."""
        with self.reading() as c:
            counts = read_counts(c)
            loops = c.execute(select(schema.loops)).all()
            turns = dict.fromkeys(TurnState, 0)
            for (kind, *name), n in counts.items():
                if kind == "turns":
                    turns[TurnState(name[0])] += n
            open_sessions, closed_sessions = (counts.get(("sessions", kind), 0) for kind in ("open", "closed"))
            return {
                "sessions": {"open": open_sessions, "total": open_sessions + closed_sessions},
                "turns": {str(state): n for state, n in turns.items()},
                "unrecognised": told(c, UNRECOGNISED),
                "excluded": {name[2]: n for name, n in counts.items() if name[0] == "turns" and name[2]},
                "verdicts": {f"{name[1]} {int(name[2]):+d}": n for name, n in counts.items() if name[0] == "verdicts"},
                "hints": counts.get((HINTS,), 0),
                "samples_ready": turns[TurnState.READY],
                "version": {"number": self.serving(c)},
                "versions_published": c.execute(select(func.count()).select_from(schema.versions)).scalar_one(),
                "batches": {
                    str(state): n
                    for state, n in c.execute(
                        select(schema.batches.c.state, func.count()).group_by(schema.batches.c.state)
                    )
                },
                "loops": {row.name: {"seconds_ago": self._ago(c, row)} | unpack_json(row.data) for row in loops},
            }

    def _ago(self, c: Connection, loop: Any) -> float:
        """Seconds since a loop last spoke; by the wall clock only where that was in an earlier boot of the machine."""
        if loop.seen_mono is not None and meta(c, "boot") == boot_id():
            return round(max(0.0, self.monotonic() - loop.seen_mono), 1)
        return round(max(0.0, self.clock() - loop.updated_at), 1)

    def list_sessions(
        self, limit: int = 50, summary: Callable[[list[Message]], str] | None = None
    ) -> list[dict[str, Any]]:
        """The sessions last seen, newest first. `summary` says in a few words what their first messages are about."""
        with self.reading() as c:
            rows = c.execute(
                select(
                    schema.sessions,
                    select(func.count()).where(T.session_id == S.id).scalar_subquery().label("turns"),
                    select(func.count()).where(T.session_id == S.id, schema.TRAINED).scalar_subquery().label("trained"),
                )
                .order_by(S.seen_seq.desc(), literal_column("sessions.rowid").desc())
                .limit(limit)
            ).all()
            found = [dict(row._mapping) for row in rows]
            for row in found if summary is not None else ():
                first = c.execute(_FIRST, {"which": row["id"]}).scalar_one_or_none()
                row["about"] = (
                    "" if first is None or summary is None else summary(history_from_chat(unpack_json(first)))
                )
            return found

    def find_session(self, given: str) -> str:
        """The session with this id, or the only one that begins like it. Raises JournalError."""
        with self.reading() as c:
            return prefixes.find_session(c, given)

    def find_turn(self, given: str) -> str:
        """The turn with this id, or the only one that begins like it. Raises UnknownTurn, or AmbiguousId."""
        with self.reading() as c:
            return prefixes.find_turn(c, given)

    def short_sessions(self, ids: Iterable[str]) -> dict[str, str]:
        """As much of each of these ids as no other session's begins with."""
        with self.reading() as c:
            return prefixes.shortened(c, "session", ids)

    def short_turns(self, ids: Iterable[str]) -> dict[str, str]:
        """The same for turns."""
        with self.reading() as c:
            return prefixes.shortened(c, "turn", ids)

    def newest_answer(self, session_id: str | None = None) -> str | None:
        """The id of the main turn that was recorded last of those with an answer, of one session or of all."""
        query = select(T.id).where(T.kind == TurnKind.MAIN, T.answer.is_not(None))
        if session_id is not None:
            query = query.where(T.session_id == session_id)
        with self.reading() as c:
            return c.execute(query.order_by(literal_column("turns.rowid").desc()).limit(1)).scalar()

    def show_session(
        self, session_id: str, new: Callable[[Any, list[dict[str, Any]]], list[dict[str, Any]]] | None = None
    ) -> dict[str, Any] | None:
        """One session with its turns, next states and verdicts, in order.

        Messages are given as they are stored. A turn that is not stored on another one has its whole history; `new` is
        given each row and its messages, and says which of them to show.
        """
        with self.reading() as c:
            session = c.execute(select(schema.sessions).where(S.id == session_id)).one_or_none()
            if session is None:
                return None
            turns = []
            verdicts = defaultdict(list)
            of_session = select(T.id).where(T.session_id == session_id)
            given = schema.verdicts.c
            for v in c.execute(select(schema.verdicts).where(given.turn_id.in_(of_session)).order_by(given.id)):
                verdicts[v.turn_id].append({"judge": v.judge, "score": v.score, "hint": v.hint, "reason": v.reason})
            for row in c.execute(select(schema.turns).where(T.session_id == session_id).order_by(T.idx)):
                messages = unpack_json(row.messages)
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
                        "prompt_tokens": row.prompt_tokens if row.used_prompt is None else row.used_prompt,
                        "response_tokens": row.response_tokens if row.used_response is None else row.used_response,
                        "created_at": row.created_at,
                        "added": messages if new is None else new(row, messages),
                        "answer": unpack_json(row.answer) if row.answer else None,
                        "next_state": unpack_json(row.next_state) if row.next_state else None,
                        "verdicts": verdicts[row.id],
                    }
                )
            return dict(session._mapping) | {"turns": turns}


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
    )
