"""The review list: hints from sources without trust, which a person may accept or reject. Nothing here is trained on.

At most one a turn and MAX_PENDING in all, of which the oldest go; what was decided is kept as long.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from turnwise.errors import JournalError, TooLate
from turnwise.journal import schema
from turnwise.journal.queue.verdicts import Verdicts, takes_feedback
from turnwise.journal.store import Store
from turnwise.sampling import takes_hint
from turnwise.types import Proposal, TurnState, Verdict

MAX_PENDING = 1000
MAX_DECIDED = 1000
R, T, W = schema.review.c, schema.turns.c, schema.verdicts.c


class ReviewState(StrEnum):
    """What became of a proposed hint."""

    PENDING = "pending"
    ACCEPTED = "accepted"
    REJECTED = "rejected"


class ReviewList:
    """Proposed hints of turns that are judged."""

    def __init__(self, store: Store, verdicts: Verdicts) -> None:
        self._store = store
        self._verdicts = verdicts

    def propose(self, c: Connection, turn_id: str, proposal: Proposal) -> None:
        """Put a hint onto the list, unless the turn has one there; the oldest make room."""
        if c.execute(select(R.id).where(R.turn_id == turn_id)).first() is not None:
            return
        values = {
            "turn_id": turn_id,
            "source": proposal.source,
            "hint": proposal.hint,
            "created_at": self._store.clock(),
        }
        c.execute(insert(schema.review).values(state=ReviewState.PENDING, **values))
        self._drop_oldest(c, ReviewState.PENDING, MAX_PENDING)

    def proposals(self, state: str = ReviewState.PENDING) -> list[dict[str, Any]]:
        """The hints on the list, oldest first, each with what its turn said and the verdict it has."""
        last = select(W.score).where(W.turn_id == R.turn_id).order_by(W.id.desc()).limit(1).scalar_subquery()
        with self._store.reading() as c:
            rows = c.execute(
                select(schema.review, T.session_id, T.state.label("turn_state"), last.label("score"))
                .join(schema.turns, R.turn_id == T.id)
                .where(R.state == state)
                .order_by(R.id)
            )
            return [dict(row._mapping) for row in rows]

    def accept(self, proposal_id: int) -> str:
        """Make a proposed hint the person's hint of its turn, with the score the turn has; says what came of it.

        Raises JournalError where there is no such hint waiting, and TooLate where the turn cannot take it any more;
        then nothing is changed.
        """
        with self._store.transaction() as c:
            row = self._pending(c, proposal_id)
            turn = c.execute(select(T.state, T.exclusion, T.hint_at).where(T.id == row.turn_id)).one()
            if not takes_hint(self._store.config.train.method, turn.hint_at):
                method = self._store.config.train.method
                raise TooLate(f"a hint teaches nothing: its turn has no place for one, or train.method is {method}")
            score = c.execute(select(W.score).where(W.turn_id == row.turn_id).order_by(W.id.desc()).limit(1)).scalar()
            verdict = Verdict(score or 0, row.hint, "person", reason=f"accepted from {row.source}")
            if not takes_feedback(TurnState(turn.state), turn.exclusion):
                raise TooLate(f"too late: the turn is already {turn.exclusion or turn.state}; nothing was changed")
            self._verdicts.settle(c, row.turn_id, verdict)
            self._decide(c, proposal_id, ReviewState.ACCEPTED)
            return f"turn {row.turn_id} has the hint now, and the score {verdict.score:+d} as before"

    def reject(self, proposal_id: int) -> None:
        """Take a proposed hint off the list. Raises JournalError where there is no such hint waiting."""
        with self._store.transaction() as c:
            self._pending(c, proposal_id)
            self._decide(c, proposal_id, ReviewState.REJECTED)

    def _pending(self, c: Connection, proposal_id: int) -> Any:
        row = c.execute(select(schema.review).where(R.id == proposal_id)).one_or_none()
        if row is None:
            raise JournalError(f"there is no proposed hint {proposal_id}; see `turnwise hints review`")
        if row.state != ReviewState.PENDING:
            raise JournalError(f"the proposed hint {proposal_id} was already {row.state}")
        return row

    def _decide(self, c: Connection, proposal_id: int, state: ReviewState) -> None:
        c.execute(update(schema.review).where(R.id == proposal_id).values(state=state))
        self._drop_oldest(c, state, MAX_DECIDED)

    def _drop_oldest(self, c: Connection, state: ReviewState, most: int) -> None:
        kept = select(R.id).where(R.state == state).order_by(R.id.desc()).limit(1).offset(most).scalar_subquery()
        c.execute(delete(schema.review).where(R.state == state, R.id <= kept))
