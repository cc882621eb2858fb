"""Failures as the journal holds them: which judged turns were looked at, and what became of those that show something.

A turn is looked at once for each verdict on it. What it shows is for others to say (`turnwise.evolving`); here stand
ids and no text. A failure is used up in the transaction in which a skill is made of it (`records.py`), or left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Connection, Select, and_, exists, func, select, update

from turnwise.journal import schema
from turnwise.journal.clocks import meta, set_meta
from turnwise.journal.dialects.sql import MOST_ROWS, insert_missing, upsert
from turnwise.journal.store import Store
from turnwise.types import TurnKind, TurnState

T, D, F, P = schema.turns.c, schema.verdicts.c, schema.failures.c, schema.provenance.c
READ = "failures_read"
"""In the journal's facts: the last verdict whose turn was looked at."""
MOST_PENDING = 200
"""Failures that wait at once; of more, the oldest are left."""

FailureKind = Literal["wish", "failure"]


@dataclass(frozen=True, slots=True)
class JudgedTurn:
    """The last word on a turn: the person's, where there is one. ``verdict``: its number; ``rollout``: it is a step of
    one."""

    verdict: int
    turn_id: str
    session_id: str
    judge: str
    score: int
    hint: str | None
    trained: bool
    rollout: bool = False
    tries: int = 0


class RecordedFailures:
    """The evolver's side of the journal."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def newest(self) -> int:
        """The number of the last verdict; it costs next to nothing to ask."""
        with self._store.reading() as c:
            return _newest(c)

    def pass_over(self) -> None:
        """Leave what was judged so far: with the evolver off, skills come of what is said once it is on."""
        with self._store.transaction() as c:
            set_meta(c, READ, _newest(c))

    def unread(self, limit: int) -> list[JudgedTurn]:
        """Main turns with verdicts that were not looked at, oldest first, each with the last word on it."""
        with self._store.transaction() as c:
            read, newest = int(meta(c, READ) or 0), _newest(c)
            if read > newest:  # verdicts were deleted, and their numbers are given out again
                set_meta(c, READ, read := newest)
            rows = c.execute(_judged().where(D.id > read).order_by(D.id).limit(limit)).all()
            if not rows and read != newest:
                set_meta(c, READ, newest)  # verdicts on side turns alone
            last = {row.turn_id: row for row in c.execute(_last_words([row.turn_id for row in rows]))}
            return [_judged_turn({**last[row.turn_id]._mapping, "id": row.id}) for row in rows]

    def note(self, read: int, found: Sequence[tuple[JudgedTurn, FailureKind]]) -> None:
        """Remember what was found, and that verdicts up to `read` were looked at, in one transaction."""
        with self._store.transaction() as c:
            for turn, kind in found:
                known = c.execute(select(F.state, F.kind).where(F.turn_id == turn.turn_id)).one_or_none()
                row = {"turn_id": turn.turn_id, "session_id": turn.session_id, "kind": kind, "state": "pending"}
                if known is None or (kind == "wish" and (known.state == "pending" or known.kind == "failure")):
                    upsert(c, schema.failures, row)  # a wish that is said later of a failure is one all the same
            _leave_oldest(c)
            set_meta(c, READ, read)

    def pending(self, kind: FailureKind) -> list[JudgedTurn]:
        """What waits, oldest first, with the last word on each."""
        waiting = select(F.turn_id).where(F.state == "pending", F.kind == kind)
        with self._store.reading() as c:
            tries = {
                row.turn_id: row.tries for row in c.execute(select(F.turn_id, F.tries).where(F.state == "pending"))
            }
            rows = c.execute(_judged(waiting).order_by(D.id.desc()).limit(MOST_PENDING)).all()
            last = {row.turn_id: row for row in c.execute(_last_words([row.turn_id for row in rows]))}
            found = [_judged_turn({**row._mapping, "tries": tries.get(row.turn_id, 0)}) for row in last.values()]
            return sorted(found, key=lambda turn: turn.verdict)

    def last_words(self, turns: Sequence[str]) -> list[JudgedTurn]:
        """The last word on each of these turns, oldest first."""
        with self._store.reading() as c:
            found = [_judged_turn(dict(row._mapping)) for row in c.execute(_last_words(turns))]
            return sorted(found, key=lambda turn: turn.verdict)

    def leave(self, turns: Sequence[str], why: str) -> None:
        """Nothing is made of these; they may be trained on as any other turn."""
        with self._store.transaction() as c:
            c.execute(update(schema.failures).where(F.turn_id.in_(turns)).values(state="left", why=why))

    def tried(self, turns: Sequence[str], why: str) -> None:
        """An evolver made nothing usable of these."""
        with self._store.transaction() as c:
            c.execute(update(schema.failures).where(F.turn_id.in_(turns)).values(tries=F.tries + 1, why=why))

    def counts(self) -> dict[str, int]:
        """How many failures and wishes wait, were used and were left."""
        with self._store.reading() as c:
            return {row.state: row.n for row in c.execute(select(F.state, func.count().label("n")).group_by(F.state))}

    def state(self, turn_id: str) -> str | None:
        """What became of a turn; None where it shows no failure."""
        with self._store.reading() as c:
            return c.execute(select(F.state).where(F.turn_id == turn_id)).scalar_one_or_none()


def _leave_oldest(c: Connection) -> None:
    """Of more failures than are looked at together, let the oldest be trained on as any other turn."""
    waiting = select(F.turn_id).where(F.state == "pending", F.kind == "failure")
    last = select(D.turn_id, func.max(D.id).label("verdict")).where(D.turn_id.in_(waiting)).group_by(D.turn_id)
    oldest = last.order_by(func.max(D.id).desc()).limit(MOST_ROWS).offset(MOST_PENDING).subquery()
    left = update(schema.failures).where(F.turn_id.in_(select(oldest.c.turn_id)))
    c.execute(left.values(state="left", why=f"more than {MOST_PENDING} failures wait, and it is among the oldest"))


def use_up(c: Connection, sources: Sequence[tuple[str, str]]) -> None:
    """A skill is made of these turns now: no other will be."""
    for turn, session in sorted(set(sources)):
        row = {"turn_id": turn, "session_id": session, "kind": "failure", "state": "used"}
        insert_missing(c, schema.failures, row)
    turns = [turn for turn, _ in sources]
    c.execute(update(schema.failures).where(F.turn_id.in_(turns)).values(state="used", why=None))


def _newest(c: Connection) -> int:
    return c.execute(select(func.coalesce(func.max(D.id), 0))).scalar_one()


def _judged(among: Select[tuple[str]] | None = None) -> Select[*tuple[Any, ...]]:
    """Verdicts on main turns."""
    on_main = select(D.id, D.turn_id).join(schema.turns, and_(T.id == D.turn_id, T.kind == TurnKind.MAIN))
    return on_main if among is None else on_main.where(D.turn_id.in_(among))


def _last_words(turns: Sequence[str]) -> Select[*tuple[Any, ...]]:
    """The last verdict on each turn; a person's outranks a judge's."""
    order = (D.judge == "person").desc(), D.id.desc()
    nth = func.row_number().over(partition_by=D.turn_id, order_by=order).label("nth")
    learned = exists(select(P.turn_id).where(P.turn_id == D.turn_id)).label("learned")
    columns = (D.id, D.turn_id, T.session_id, D.judge, D.score, D.hint, T.state, T.step, learned)
    ranked = select(*columns, nth).join(schema.turns, T.id == D.turn_id).where(D.turn_id.in_(turns)).subquery()
    return select(*(ranked.c[column.name] for column in columns)).where(ranked.c.nth == 1)


def _judged_turn(row: dict[str, object]) -> JudgedTurn:
    values = {name: row[name] for name in ("turn_id", "session_id", "judge", "score", "hint")}
    # A turn that goes its way once more for a late score was trained on, too.
    trained = row["state"] == TurnState.TRAINED or bool(row["learned"])
    more = {"trained": trained, "rollout": row["step"] is not None, "tries": row.get("tries", 0)}
    return JudgedTurn(verdict=row["id"], **more, **values)  # type: ignore[arg-type]
