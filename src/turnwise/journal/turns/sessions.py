"""Sessions: which were seen last, which are idle, what one of them holds, and how they are closed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from sqlalchemy import Connection, Select, bindparam, func, insert, select, update

from turnwise.journal import prefixes, schema
from turnwise.journal.packing import unpack_json
from turnwise.journal.rollouts.trajectories import is_rollout
from turnwise.journal.skills.generations import why_left_out
from turnwise.journal.store import Store
from turnwise.journal.turns.recorded import Turn, recorded
from turnwise.journal.turns.set_aside import set_aside
from turnwise.messages import history_from_chat
from turnwise.sampling import may_keep_only_turn
from turnwise.types import UNANSWERED, Exclusion, Message, TurnKind, TurnState

S, T = schema.sessions.c, schema.turns.c
_COLUMNS = [column for column in schema.sessions.c if column is not S.seq]
_FIRST = select(T.messages).where(T.session_id == bindparam("which"), T.kind == TurnKind.MAIN).order_by(T.idx).limit(1)

CLOSED_AT_ONCE = 300
"""Turns that closing a session moves in one transaction."""
_WAITING = (
    select(T.id, T.state, T.exclusion, T.response_tokens)
    .where(T.session_id == bindparam("which"), schema.WAITING)
    .limit(CLOSED_AT_ONCE + 1)
)
_MAIN = (  # as many as tell one from several
    select(T.id)
    .where(
        T.session_id == bindparam("which"),
        T.kind == TurnKind.MAIN,
        T.finish_reason.not_in(UNANSWERED),
    )
    .limit(2)
)


Choice = Callable[[Turn, list[dict[str, Any]]], list[dict[str, Any]]]
"""Which of a turn's messages to show."""


class Sessions:
    """The conversations that turns belong to."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def close(self, session_id: str, reason: str, idle_before: float | None = None) -> bool:
        """Close a session: its turns without a next state are excluded, but for the only one of a session, and for the
        steps of a rollout, which wait for its outcome.

        With `idle_before`, in seconds of the monotonic clock, only if it is idle still: not seen since, and no answer
        under way. Returns False when there is no such session, or it is not idle. Closing twice is harmless.
        """
        while True:
            with self._store.transaction() as c:
                row = c.execute(select(S.closed_at).where(S.id == session_id)).one_or_none()
                if row is None:
                    return False
                if idle_before is not None and not c.execute(_idle(idle_before).where(S.id == session_id)).first():
                    return False
                waiting = [] if is_rollout(c, session_id) else c.execute(_WAITING, {"which": session_id}).all()
                if len(waiting) > CLOSED_AT_ONCE:
                    self._store.move_all(c, waiting, TurnState.EXCLUDED, Exclusion.NO_NEXT_STATE)
                    continue  # it is closed once the rest of them fits into one short transaction
                if row.closed_at is None:
                    closed = {"closed_at": self._store.clock(), "close_reason": reason}
                    c.execute(update(schema.sessions).where(S.id == session_id).values(closed))
                self._end_waiting(c, session_id, waiting)
            return True

    def _end_waiting(self, c: Connection, session_id: str, waiting: Iterable[Any]) -> None:
        """Settle the turns that no next state will come to."""
        rows = list(waiting)
        keeps = self._store.config.train.enabled and may_keep_only_turn([row.response_tokens for row in rows])
        only = keeps and len(c.execute(_MAIN, {"which": session_id}).all()) == 1
        if only and set_aside(c, session_id, self._store.config.gate):
            self._store.move(c, rows[0].id, TurnState.EXCLUDED, exclusion=Exclusion.SET_ASIDE)
        elif only and (reason := why_left_out(c, self._store, rows[0].id)):
            self._store.move(c, rows[0].id, TurnState.EXCLUDED, exclusion=reason)
        elif only:
            self._store.move(c, rows[0].id, TurnState.READY)
            ready = {"created_at": self._store.clock(), "ready_mono": self._store.now(c)}
            c.execute(insert(schema.samples).values(turn_id=rows[0].id, reward=0.0, **ready))
        else:
            self._store.move_all(c, rows, TurnState.EXCLUDED, Exclusion.NO_NEXT_STATE)

    def idle(self, before: float) -> list[str]:
        """Open sessions last seen before this time of the monotonic clock that have no answer under way."""
        with self._store.reading() as c:
            return [row.id for row in c.execute(_idle(before).limit(200))]

    # -- for people ---------------------------------------------------------------------------------------------

    def last_seen(self, limit: int = 50, summary: Callable[[list[Message]], str] | None = None) -> list[dict[str, Any]]:
        """The sessions last seen, newest first. `summary` says in a few words what their first messages are about."""
        with self._store.reading() as c:
            rows = c.execute(
                select(
                    *_COLUMNS,
                    select(func.count()).where(T.session_id == S.id).scalar_subquery().label("turns"),
                    select(func.count()).where(T.session_id == S.id, schema.TRAINED).scalar_subquery().label("trained"),
                )
                .order_by(S.seen_seq.desc(), S.seq.desc())
                .limit(limit)
            ).all()
            found = [dict(row._mapping) for row in rows]
            for row in found if summary is not None else ():
                first = c.execute(_FIRST, {"which": row["id"]}).scalar_one_or_none()
                row["about"] = (
                    "" if first is None or summary is None else summary(history_from_chat(unpack_json(first)))
                )
            return found

    def find(self, given: str) -> str:
        """The session with this id, or the only one that begins like it. Raises JournalError."""
        with self._store.reading() as c:
            return prefixes.find_session(c, given)

    def short_ids(self, ids: Iterable[str]) -> dict[str, str]:
        """As much of each of these ids as no other session's begins with."""
        with self._store.reading() as c:
            return prefixes.shortened(c, "session", ids)

    def show(self, session_id: str, new: Choice | None = None) -> dict[str, Any] | None:
        """One session with its turns, next states and verdicts, in order.

        Messages are given as they are stored. A turn that is not stored on another one has its whole history; `new` is
        given each turn and its messages, and says which of them to show.
        """
        with self._store.reading() as c:
            session = c.execute(select(*_COLUMNS).where(S.id == session_id)).one_or_none()
            if session is None:
                return None
            verdicts = _verdicts(c, session_id)
            rows = c.execute(select(schema.turns).where(T.session_id == session_id).order_by(T.idx))
            return dict(session._mapping) | {"turns": [_shown(row, verdicts[row.id], new) for row in rows]}


def _idle(before: float) -> Select[tuple[str]]:
    """Open sessions last seen before this time of the monotonic clock, with no answer under way."""
    busy = select(T.session_id).where(schema.SERVED)
    return select(S.id).where(S.closed_at.is_(None), S.seen_mono < before, S.id.not_in(busy))


def _verdicts(c: Connection, session_id: str) -> dict[str, list[dict[str, Any]]]:
    """The verdicts on each turn of a session, in their order."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    of_session = select(T.id).where(T.session_id == session_id)
    given = schema.verdicts.c
    for v in c.execute(select(schema.verdicts).where(given.turn_id.in_(of_session)).order_by(given.id)):
        found[v.turn_id].append({"judge": v.judge, "score": v.score, "hint": v.hint, "reason": v.reason})
    return found


def _shown(row: Any, verdicts: list[dict[str, Any]], new: Choice | None) -> dict[str, Any]:
    messages = unpack_json(row.messages)
    answer = unpack_json(row.answer) if row.answer else None
    return {
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
        "added": messages if new is None else new(recorded(Turn, row), messages),
        "answer": answer,
        "next_state": unpack_json(row.next_state) if row.next_state else None,
        "verdicts": verdicts,
    }
