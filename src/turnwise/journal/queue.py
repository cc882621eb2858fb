"""Leases: how judges and trainers take work from the journal without losing any or doing any twice.

A lease is an owner, a token and a deadline on the row itself. Whoever holds an older token than the row's gets
LeaseLost and must drop the work; a worker that dies simply lets its lease run out. Deadlines are of the monotonic clock
(clocks.py), and one that is further away than any lease lasts is over.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, and_, bindparam, func, insert, literal_column, or_, select, update

from turnwise.errors import LeaseLost
from turnwise.journal import schema
from turnwise.journal.clocks import LONGEST_RETRY_S, ORDER, is_due, is_free, meta, set_meta
from turnwise.journal.review import ReviewList
from turnwise.journal.schema import NOT_SERVING, pack_json, unpack_ids, unpack_json, unpack_logprobs
from turnwise.messages import from_chat, history_from_chat
from turnwise.types import (
    BASE_VERSION,
    Batch,
    Exclusion,
    FinishReason,
    JudgeTask,
    PolicyVersion,
    Sample,
    TurnState,
    Verdict,
)

log = logging.getLogger(__name__)

T, B, V = schema.turns.c, schema.batches.c, schema.versions.c
_STALE_AT_ONCE = 64
"""Samples found stale that one claim excludes; the next claims do the rest, so that no request waits for it."""
_FRESH = (
    select(T.id, T.state, T.exclusion)
    .where(schema.READY, T.version >= bindparam("oldest"))
    .order_by(literal_column("+turns.rowid"))  # ORDER; the + keeps SQLite from walking all turns in it
    .limit(bindparam("most"))
)
BATCH_ATTEMPTS = 3
"""Trainers that a batch may end without having come further; then it is given up, and the next one has its turn."""
PROBED = (Exclusion.STALE, Exclusion.REFUSED_BY_GATE, Exclusion.NO_SIGNAL, Exclusion.PINNED_VERSION)
"""Exclusions that say nothing against an answer: it may still be one that the gate looks at."""
PROBES = and_(schema.GOOD, or_(T.exclusion.is_(None), T.exclusion.in_(PROBED)))
"""The turns that the gate may look at."""


class Queue(ReviewList):
    """The judge's and the trainer's side of the journal."""

    # -- judging ------------------------------------------------------------------------------------------------

    def claim_for_judging(self, worker: str, limit: int, lease_s: float) -> list[JudgeTask]:
        """Lease up to `limit` turns whose next state is here: oldest first, and those that failed before last."""
        now = self.monotonic()
        free = is_free(T.lease_until, now, max(lease_s, self.config.judge.lease_s))
        next_ones = (
            select(T.id, T.attempts, T.last_error)
            .where(schema.JUDGING, is_due(T.retry_at, now), free)
            .order_by(T.retry_at, ORDER)
            .limit(limit)
        )
        tokens = {}
        with self.transaction() as c:
            for row in c.execute(next_ones).all():
                if row.attempts >= self.config.judge.max_attempts:
                    self._give_up(c, row)
                    continue
                tokens[row.id] = uuid.uuid4().hex
                lease = {"lease_owner": worker, "lease_token": tokens[row.id], "lease_until": now + lease_s}
                c.execute(update(schema.turns).where(T.id == row.id).values(lease | {"attempts": row.attempts + 1}))
        return self._judge_tasks(tokens) if tokens else []

    def _judge_tasks(self, tokens: Mapping[str, str]) -> list[JudgeTask]:
        """What there is to say of leased turns. Read outside of the transaction that leased them: others may write."""
        with self.reading() as c:
            rows = {row.id: row for row in c.execute(select(schema.turns).where(T.id.in_(tokens)))}
            tasks = []
            for row in (rows[turn_id] for turn_id in tokens if turn_id in rows):  # one may be forgotten meanwhile
                if row.lease_token != tokens[row.id]:
                    continue
                messages, _ = self.read_context(c, row)
                tasks.append(
                    JudgeTask(
                        turn_id=row.id,
                        lease_token=row.lease_token,
                        attempts=row.attempts,
                        messages=history_from_chat(messages),
                        answer=from_chat(unpack_json(row.answer)),
                        next_state=history_from_chat(unpack_json(row.next_state)),
                        cut_off=row.finish_reason == FinishReason.LENGTH,
                        tools=self.read_tools(c, row),
                    )
                )
            return tasks

    def renew_judging(self, task: JudgeTask, lease_s: float) -> None:
        """Keep a turn for longer. Raises LeaseLost."""
        with self.transaction() as c:
            self._hold(c, task)
            c.execute(update(schema.turns).where(T.id == task.turn_id).values(lease_until=self.monotonic() + lease_s))

    def record_verdict(self, task: JudgeTask, verdict: Verdict) -> None:
        """Settle a leased turn. Raises LeaseLost when another worker, or the person, was faster."""
        with self.transaction() as c:
            self._hold(c, task)
            self._settle(c, task.turn_id, verdict)
            if verdict.proposal is not None and not verdict.hint:
                self.propose_hint(c, task.turn_id, verdict.proposal)

    def _give_up(self, c: Connection, row: Any) -> None:
        """Exclude a turn whose judges ended, every one of them, before they said anything."""
        error = f"its judge ended {row.attempts} times without a verdict"
        error += f"; before that: {row.last_error}" if row.last_error else ""
        log.error("turn %s is given up: %s", row.id, error)
        self.move(c, row.id, TurnState.EXCLUDED, exclusion=Exclusion.NO_VALID_VOTE, last_error=error)

    def release_judging(self, task: JudgeTask) -> None:
        """Give a turn back because its judge was asked to stop: no try of the turn's. Raises LeaseLost."""
        free = {"lease_owner": None, "lease_token": None, "lease_until": None}
        with self.transaction() as c:
            self._hold(c, task)
            uncounted = free | {"attempts": func.max(T.attempts - 1, 0)}
            c.execute(update(schema.turns).where(T.id == task.turn_id).values(uncounted))

    def judging_failed(self, task: JudgeTask, error: str, retry_in_s: float, max_attempts: int) -> None:
        """Give a turn back to be tried again later, or exclude it after `max_attempts`: an outage is no verdict."""
        with self.transaction() as c:
            self._hold(c, task)
            if task.attempts >= max_attempts:
                self.move(c, task.turn_id, TurnState.EXCLUDED, exclusion=Exclusion.NO_VALID_VOTE, last_error=error)
            else:
                c.execute(
                    update(schema.turns)
                    .where(T.id == task.turn_id)
                    .values(
                        lease_owner=None,
                        lease_token=None,
                        lease_until=None,
                        retry_at=self.monotonic() + min(retry_in_s, LONGEST_RETRY_S),
                        last_error=error,
                    )
                )

    def _hold(self, c: Connection, task: JudgeTask) -> None:
        row = c.execute(select(T.lease_token, T.state).where(T.id == task.turn_id)).one_or_none()
        if row is None or row.lease_token != task.lease_token or row.state != TurnState.JUDGING:
            raise LeaseLost(f"turn {task.turn_id} is no longer leased to this judge")

    # -- training -----------------------------------------------------------------------------------------------

    def claim_batch(self, worker: str, lease_s: float) -> Batch | None:
        """Lease the next batch, or None when too few samples are ready and none is old enough.

        A batch whose trainer died comes first: same samples, same order, same parent, so that the step is repeated
        exactly. After BATCH_ATTEMPTS trainers that died over it without coming further it is refused instead.
        Everything that is not taken stays ready.
        """
        token = uuid.uuid4().hex
        leased = self._lease_batch(worker, lease_s, token)
        if leased is None:
            return None
        batch_id, parent, ids = leased
        with self.reading() as c:  # outside of the transaction that leased them: others may write meanwhile
            return Batch(batch_id, token, parent, self._samples(c, ids))

    def _lease_batch(self, worker: str, lease_s: float, token: str) -> tuple[int, int, list[str]] | None:
        """The id, the parent and the turns of the batch that is leased now."""
        now = self.monotonic()
        train = self.config.train
        lease = {"lease_owner": worker, "lease_token": token, "lease_until": now + lease_s}
        with self.transaction() as c:
            serving = self.serving(c)
            left = c.execute(select(schema.batches).where(B.state == "open").order_by(B.id).limit(1)).one_or_none()
            if left is not None:
                longest = now + max(lease_s, train.lease_s)
                if left.lease_until is not None and now <= left.lease_until <= longest:
                    return None  # its trainer is alive
                if left.attempts < BATCH_ATTEMPTS:
                    again = lease | {"attempts": left.attempts + 1}
                    c.execute(update(schema.batches).where(B.id == left.id).values(again))
                    return left.id, left.parent, unpack_json(left.turn_ids)
                reason = f"its trainer ended {left.attempts} times without coming further"
                reason += f"; the last time: {left.last_error}" if left.last_error else ""
                log.error("batch %d is given up: %s", left.id, reason)
                self._refuse(c, left.id, {"accepted": False, "reasons": [reason]}, {}, Exclusion.FAILED_IN_TRAINING)
            oldest = self._oldest_fresh(c, serving, train.max_staleness)
            stale = select(T.id, T.state, T.exclusion).where(schema.READY, T.version < oldest).limit(_STALE_AT_ONCE)
            self.move_all(c, c.execute(stale).all(), TurnState.EXCLUDED, Exclusion.STALE)
            fresh = c.execute(_FRESH, {"oldest": oldest, "most": train.max_batch}).all()
            ids = [row.id for row in fresh]
            if not fresh or (len(fresh) < train.min_batch and not self._old_enough(c, ids, now, train.max_age_s)):
                return None
            batch_id = c.execute(
                insert(schema.batches)
                .values(state="open", parent=serving, turn_ids=pack_json(ids), created_at=self.clock(), attempts=1)
                .values(lease)
                .returning(B.id)
            ).scalar_one()
            self.move_all(c, fresh, TurnState.LEASED, batch_id=batch_id)
            self.log(c, "batch", None, {"batch": batch_id, "parent": serving, "turns": ids})
            return batch_id, serving, ids

    @staticmethod
    def _old_enough(c: Connection, ids: Sequence[str], now: float, max_age_s: float) -> bool:
        """Whether any sample waited for long enough to be trained on with less than a whole batch.

        One of an earlier boot has, and one of a time to come was not made in this boot.
        """
        made = schema.samples.c.ready_mono
        made_at = c.execute(select(made).where(schema.samples.c.turn_id.in_(ids))).scalars()
        return any(at is None or not 0 <= now - at < max_age_s for at in made_at)

    def renew_batch(self, batch: Batch, lease_s: float) -> None:
        """Keep a batch for longer. Raises LeaseLost."""
        with self.transaction() as c:
            self._hold_batch(c, batch)
            c.execute(update(schema.batches).where(B.id == batch.id).values(lease_until=self.monotonic() + lease_s))

    def release_batch(self, batch: Batch) -> None:
        """Put a batch's samples back to ready, because the step cannot be done now. Raises LeaseLost."""
        with self.transaction() as c:
            self._hold_batch(c, batch)
            self.release(c, batch.id)

    def suspend_batch(self, batch: Batch) -> None:
        """Let go of a batch without undoing it: the next trainer resumes the same step at once. Raises LeaseLost."""
        with self.transaction() as c:
            self._hold_batch(c, batch)
            uncounted = {"lease_until": None, "attempts": func.max(B.attempts - 1, 0)}
            c.execute(update(schema.batches).where(B.id == batch.id).values(uncounted))

    def batch_came_further(self, batch: Batch) -> None:
        """What is done of the batch is on disk: attempts are counted anew. Raises LeaseLost."""
        with self.transaction() as c:
            self._hold_batch(c, batch)
            c.execute(update(schema.batches).where(B.id == batch.id).values(attempts=0))

    def batch_failed(self, batch: Batch, error: str) -> None:
        """Say what ended the trainer of a batch, and let the next one try at once. Raises LeaseLost."""
        with self.transaction() as c:
            self._hold_batch(c, batch)
            c.execute(update(schema.batches).where(B.id == batch.id).values(lease_until=None, last_error=error))

    def reserve_version(self, batch: Batch, above: int = 0) -> int:
        """The number of the version that a batch becomes: the same for every trainer that takes the batch up.

        It is higher than any number that was ever given out, and than `above`: where an older journal was put back,
        there may be directories of later versions. Raises LeaseLost.
        """
        with self.transaction() as c:
            self._hold_batch(c, batch)
            number = c.execute(select(B.version).where(B.id == batch.id)).scalar_one()
            if number is None:
                number = max(self._last_number(c), above) + 1
                c.execute(update(schema.batches).where(B.id == batch.id).values(version=number))
                set_meta(c, "last_version", number)
            return number

    @contextmanager
    def unrecorded_versions(self) -> Iterator[set[int]]:
        """Numbers that were kept for a batch and have no version; none is recorded while they are looked at."""
        with self.transaction() as c:
            kept = c.execute(select(B.version).where(B.version.is_not(None), B.version.not_in(select(V.number))))
            yield set(kept.scalars())

    def _last_number(self, c: Connection) -> int:
        recorded = c.execute(select(func.coalesce(func.max(V.number), 0))).scalar_one()
        return max(recorded, int(meta(c, "last_version") or 0))

    def finish_batch(
        self,
        batch: Batch,
        version: PolicyVersion,
        dropped: Mapping[str, str] | None = None,
        put_in_place: Callable[[], None] | None = None,
    ) -> None:
        """Publish a version and mark its samples trained, in one transaction. Raises LeaseLost.

        ``dropped`` are turns of the batch that are no part of the version, with the reason of each. ``put_in_place``
        gives the version's directory its name: last, while nobody else can write, so that who has lost the batch never
        gets there. Raises what it raises, with nothing recorded.
        """
        with self.transaction() as c:
            self._hold_batch(c, batch)
            leased = self._leased(c, batch.id)
            c.execute(
                insert(schema.versions).values(
                    turn_ids=pack_json(sorted(set(leased) - (dropped or {}).keys())),
                    number=version.number,
                    parent=batch.parent,
                    path=version.path,
                    batch_id=batch.id,
                    metrics=pack_json(version.metrics),
                    gate=pack_json(version.gate),
                    created_at=version.created_at,
                    published_at=self.clock(),
                    serve_seq=self._next_in_line(c),
                )
            )
            for turn_id in leased:
                if reason := (dropped or {}).get(turn_id):
                    failed = Exclusion.FAILED_IN_TRAINING
                    self.move(c, turn_id, TurnState.EXCLUDED, exclusion=failed, last_error=reason)
                else:
                    self.move(c, turn_id, TurnState.TRAINED)
            self._end_batch(
                c,
                batch.id,
                "done",
                version=version.number,
                metrics=pack_json(version.metrics),
                gate=pack_json(version.gate),
            )
            set_meta(c, "last_version", self._last_number(c))
            self.log(c, "version", None, {"version": version.number, "metrics": version.metrics, "gate": version.gate})
            if put_in_place is not None:
                put_in_place()

    def refuse_batch(
        self,
        batch: Batch,
        gate: dict[str, Any],
        metrics: dict[str, float],
        exclusion: Exclusion = Exclusion.REFUSED_BY_GATE,
    ) -> None:
        """Nothing is published of the batch, and its samples are spent. Raises LeaseLost."""
        with self.transaction() as c:
            self._hold_batch(c, batch)
            self._refuse(c, batch.id, gate, metrics, exclusion)

    def gate_probes(self, limit: int, exclude: Iterable[str]) -> list[Sample]:
        """The newest well-judged turns outside of `exclude`: what a candidate version must not get worse at.

        Of several verdicts on a turn the person's last one counts, and the judge's last one where there is none.
        """
        query = select(T.id).where(PROBES, T.id.not_in(list(exclude))).order_by(T.good_verdict.desc()).limit(limit)
        with self.reading() as c:
            ids = c.execute(query).scalars().all()
            return self._samples(c, ids)

    def _hold_batch(self, c: Connection, batch: Batch) -> None:
        row = c.execute(select(B.state, B.lease_token).where(B.id == batch.id)).one_or_none()
        if row is None or row.state != "open" or row.lease_token != batch.lease_token:
            raise LeaseLost(f"batch {batch.id} is no longer leased to this trainer")

    def _leased(self, c: Connection, batch: int) -> Sequence[str]:
        return c.execute(select(T.id).where(and_(T.batch_id == batch, T.state == TurnState.LEASED))).scalars().all()

    def release(self, c: Connection, batch: int) -> None:
        """Put the samples of an open batch back to ready; who holds it learns that at their next step."""
        for turn_id in self._leased(c, batch):
            self.move(c, turn_id, TurnState.READY, batch_id=None)
        self._end_batch(c, batch, "released")

    def _refuse(
        self, c: Connection, batch: int, gate: dict[str, Any], metrics: dict[str, float], exclusion: Exclusion
    ) -> None:
        why = "; ".join(gate.get("reasons", [])) or None
        for turn_id in self._leased(c, batch):
            self.move(c, turn_id, TurnState.EXCLUDED, exclusion=exclusion, last_error=why)
        self._end_batch(c, batch, "refused", metrics=pack_json(metrics), gate=pack_json(gate))
        self.log(c, "version", None, {"version": None, "batch": batch, "metrics": metrics, "gate": gate})

    def _end_batch(self, c: Connection, batch: int, state: str, **columns: Any) -> None:
        columns |= {"state": state, "finished_at": self.clock(), "lease_until": None}
        c.execute(update(schema.batches).where(B.id == batch).values(columns))

    def _samples(self, c: Connection, turn_ids: Sequence[str]) -> list[Sample]:
        found = {}
        for row in c.execute(
            select(schema.turns, schema.samples.c.reward, schema.samples.c.hint)
            .outerjoin(schema.samples, schema.samples.c.turn_id == T.id)
            .where(T.id.in_(list(turn_ids)))
        ):
            found[row.id] = Sample(
                turn_id=row.id,
                session_id=row.session_id,
                prompt_ids=self.read_prompt_ids(c, row),
                response_ids=unpack_ids(row.response_ids),
                logprobs=unpack_logprobs(row.logprobs),
                temperature=row.temperature,
                version=row.version,
                reward=row.reward or 0.0,
                hint=row.hint,
                hint_at=row.hint_at,
            )
        return [found[turn_id] for turn_id in turn_ids if turn_id in found]

    def serving(self, c: Connection) -> int:
        """The number of the version that serves: the last one published or made to serve again; 0 is the base model."""
        last = select(V.number).where(V.serve_seq > NOT_SERVING).order_by(V.serve_seq.desc()).limit(1)
        return c.execute(last).scalar_one_or_none() or BASE_VERSION

    def _oldest_fresh(self, c: Connection, serving: int, max_staleness: int) -> int:
        """The lowest version whose samples are not too old: at most so many versions were published after it."""
        newest = select(V.number).where(V.number <= serving).order_by(V.number.desc())
        return c.execute(newest.limit(1).offset(max_staleness)).scalar_one_or_none() or BASE_VERSION

    def _next_in_line(self, c: Connection) -> int:
        """The `serve_seq` of a version that serves from now on."""
        return c.execute(select(func.coalesce(func.max(V.serve_seq), NOT_SERVING))).scalar_one() + 1
