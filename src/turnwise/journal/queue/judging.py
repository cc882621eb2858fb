"""Judging: how a judge takes turns whose next state is here from the journal, without losing any or judging any twice.

A lease is an owner, a token and a deadline on the turn's row. Whoever holds an older token than the row's gets
LeaseLost and must drop the work; a judge that dies simply lets its lease run out. Deadlines are of the clock that all
who share the journal have (clocks.py), and one that is further away than any lease lasts is over.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, bindparam, select, update

from turnwise.errors import LeaseLost
from turnwise.journal import schema
from turnwise.journal.clocks import LONGEST_RETRY_S, is_due, is_free, one_less
from turnwise.journal.queue.review import ReviewList
from turnwise.journal.queue.verdicts import Verdicts
from turnwise.journal.rollouts.groups import votes_on
from turnwise.journal.store import Store
from turnwise.journal.turns.reading import read_turns
from turnwise.journal.turns.recorded import WHOLE, WholeTurn
from turnwise.messages import answer_of, observed
from turnwise.types import Exclusion, FinishReason, JudgeTask, TurnState, Verdict

log = logging.getLogger(__name__)

T = schema.turns.c
_LEASE = update(schema.turns).where(T.id == bindparam("which"))
_LEASED = WHOLE.add_columns(T.lease_token, T.attempts, T.step)


class Judging:
    """The judge's side of the journal."""

    def __init__(self, store: Store, verdicts: Verdicts, review: ReviewList) -> None:
        self._store = store
        self._verdicts = verdicts
        self._review = review

    def claim(self, worker: str, limit: int, lease_s: float) -> list[JudgeTask]:
        """Lease up to `limit` turns whose next state is here: oldest first, and those that failed before last."""
        judge = self._store.config.judge
        leases = []
        given_up = []
        with self._store.transaction(leasing=True) as c:
            now = self._store.now(c)
            free = is_free(T.lease_until, now, max(lease_s, judge.lease_s))
            next_ones = (
                select(T.id, T.attempts)
                .where(schema.JUDGING, is_due(T.retry_at, now), free)
                .order_by(T.retry_at, T.seq)
                .limit(limit)
                .with_for_update(skip_locked=True)
            )
            for row in c.execute(next_ones).all():
                if row.attempts >= judge.max_attempts:
                    given_up.append(row.id)
                    continue
                lease = {"which": row.id, "lease_token": uuid.uuid4().hex, "attempts": row.attempts + 1}
                leases.append(lease | {"lease_owner": worker, "lease_until": now + lease_s})
            if leases:
                c.execute(_LEASE, leases)
        if given_up:
            self._give_up(given_up, max(lease_s, judge.lease_s))
        return self._judge_tasks({lease["which"]: lease["lease_token"] for lease in leases}) if leases else []

    def _judge_tasks(self, tokens: Mapping[str, str]) -> list[JudgeTask]:
        """What there is to say of leased turns. Read outside of the transaction that leased them: others may write."""
        with self._store.reading() as c:
            rows = {row.id: row for row in c.execute(_LEASED.where(T.id.in_(tokens)))}
            # One may be forgotten meanwhile, or leased anew.
            leased = [rows[one] for one in tokens if one in rows and rows[one].lease_token == tokens[one]]
            turns = zip(leased, read_turns(c, leased), strict=True)
            votes = votes_on(self._store, c, leased)
            return [
                judge_task(turn, row.lease_token, row.attempts, votes.get(row.id), rollout=row.step is not None)
                for row, turn in turns
            ]

    def renew(self, task: JudgeTask, lease_s: float) -> None:
        """Keep a turn for longer. Raises LeaseLost."""
        with self._store.transaction() as c:
            self._hold(c, task)
            c.execute(update(schema.turns).where(T.id == task.turn_id).values(lease_until=self._store.now(c) + lease_s))

    def record(self, task: JudgeTask, verdict: Verdict) -> None:
        """Settle a leased turn. Raises LeaseLost when another worker, or the person, was faster."""
        with self._store.transaction() as c:
            self._hold(c, task)
            self._verdicts.settle(c, task.turn_id, verdict)
            if verdict.proposal is not None and not verdict.hint:
                self._review.propose(c, task.turn_id, verdict.proposal)

    def _give_up(self, ids: Sequence[str], longest_s: float) -> None:
        """Exclude turns whose judges ended, every one of them, before they said anything; nobody else writes."""
        with self._store.transaction() as c:
            free = is_free(T.lease_until, self._store.now(c), longest_s)
            enough = T.attempts >= self._store.config.judge.max_attempts
            still = select(T.id, T.attempts, T.last_error).where(T.id.in_(ids), schema.JUDGING, free, enough)
            for row in c.execute(still.order_by(T.seq)).all():
                error = f"its judge ended {row.attempts} times without a verdict"
                error += f"; before that: {row.last_error}" if row.last_error else ""
                log.error("turn %s is given up: %s", row.id, error)
                self._store.move(c, row.id, TurnState.EXCLUDED, exclusion=Exclusion.NO_VALID_VOTE, last_error=error)

    def release(self, task: JudgeTask) -> None:
        """Give a turn back because its judge was asked to stop: no try of the turn's. Raises LeaseLost."""
        free = {"lease_owner": None, "lease_token": None, "lease_until": None}
        with self._store.transaction() as c:
            self._hold(c, task)
            uncounted = free | {"attempts": one_less(T.attempts)}
            c.execute(update(schema.turns).where(T.id == task.turn_id).values(uncounted))

    def failed(self, task: JudgeTask, error: str, retry_in_s: float, max_attempts: int) -> None:
        """Give a turn back to be tried again later, or exclude it after `max_attempts`: an outage is no verdict."""
        with self._store.transaction() as c:
            self._hold(c, task)
            if task.attempts >= max_attempts:
                self._store.move(
                    c, task.turn_id, TurnState.EXCLUDED, exclusion=Exclusion.NO_VALID_VOTE, last_error=error
                )
            else:
                c.execute(
                    update(schema.turns)
                    .where(T.id == task.turn_id)
                    .values(
                        lease_owner=None,
                        lease_token=None,
                        lease_until=None,
                        retry_at=self._store.now(c) + min(retry_in_s, LONGEST_RETRY_S),
                        last_error=error,
                    )
                )

    def _hold(self, c: Connection, task: JudgeTask) -> None:
        row = c.execute(select(T.lease_token, T.state).where(T.id == task.turn_id)).one_or_none()
        if row is None or row.lease_token != task.lease_token or row.state != TurnState.JUDGING:
            raise LeaseLost(f"turn {task.turn_id} is no longer leased to this judge")


def judge_task(
    turn: WholeTurn, lease_token: str = "", attempts: int = 0, votes: int | None = None, *, rollout: bool
) -> JudgeTask:
    """Of a turn what a judge is to know. In a rollout nobody's words stand behind its task."""
    return JudgeTask(
        turn_id=turn.id,
        lease_token=lease_token,
        attempts=attempts,
        messages=observed(turn.messages) if rollout else turn.messages,
        answer=turn.answer or answer_of(""),
        next_state=observed(turn.next_state, begun=True) if rollout else turn.next_state,
        cut_off=turn.finish_reason is FinishReason.LENGTH,
        tools=turn.tools,
        votes=votes,
    )
