"""Leases: how judges and trainers take work from the journal without losing any or doing any twice.

A lease is an owner, a token and a deadline on the row itself. Whoever holds an older token than the row's gets
LeaseLost and must drop the work; a worker that dies simply lets its lease run out.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, and_, func, insert, or_, select, update

from turnwise.errors import LeaseLost
from turnwise.journal import schema
from turnwise.journal.recording import Recording
from turnwise.journal.schema import NOT_SERVING, pack_json, unpack_ids, unpack_json, unpack_logprobs
from turnwise.types import (
    BASE_VERSION,
    Batch,
    Exclusion,
    FinishReason,
    JudgeTask,
    PolicyVersion,
    Sample,
    TurnKind,
    TurnState,
    Verdict,
)

log = logging.getLogger(__name__)

T, B, V = schema.turns.c, schema.batches.c, schema.versions.c
_BATCH_SCAN = 256
BATCH_ATTEMPTS = 3
"""Trainers that a batch may end without having come further; then it is given up, and the next one has its turn."""
PROBED = (Exclusion.STALE, Exclusion.REFUSED_BY_GATE, Exclusion.NO_SIGNAL, Exclusion.PINNED_VERSION)
"""Exclusions that say nothing against an answer: it may still be one that the gate looks at."""


class Queue(Recording):
    """The judge's and the trainer's side of the journal."""

    # -- judging ------------------------------------------------------------------------------------------------

    def claim_for_judging(self, worker: str, limit: int, lease_s: float) -> list[JudgeTask]:
        """Lease up to `limit` turns whose next state is here, oldest first."""
        now = self.clock()
        free = or_(T.lease_until.is_(None), T.lease_until < now)
        with self.transaction() as c:
            rows = c.execute(
                select(schema.turns)
                .where(T.state == TurnState.JUDGING, T.retry_at <= now, free)
                .order_by(T.next_state_at, T.id)
                .limit(limit)
            ).all()
            tasks = []
            for row in rows:
                token = uuid.uuid4().hex
                c.execute(
                    update(schema.turns)
                    .where(T.id == row.id)
                    .values(lease_owner=worker, lease_token=token, lease_until=now + lease_s, attempts=row.attempts + 1)
                )
                messages, _ = self.read_context(c, row)
                tasks.append(
                    JudgeTask(
                        turn_id=row.id,
                        lease_token=token,
                        attempts=row.attempts + 1,
                        messages=messages,
                        answer=unpack_json(row.answer),
                        next_state=unpack_json(row.next_state),
                        cut_off=row.finish_reason == FinishReason.LENGTH,
                    )
                )
            return tasks

    def renew_judging(self, task: JudgeTask, lease_s: float) -> None:
        """Keep a turn for longer. Raises LeaseLost."""
        with self.transaction() as c:
            self._hold(c, task)
            c.execute(update(schema.turns).where(T.id == task.turn_id).values(lease_until=self.clock() + lease_s))

    def record_verdict(self, task: JudgeTask, verdict: Verdict) -> None:
        """Settle a leased turn. Raises LeaseLost when another worker, or the person, was faster."""
        with self.transaction() as c:
            self._hold(c, task)
            self._settle(c, task.turn_id, verdict)

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
                        retry_at=self.clock() + retry_in_s,
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
        now = self.clock()
        train = self.config.train
        token = uuid.uuid4().hex
        lease = {"lease_owner": worker, "lease_token": token, "lease_until": now + lease_s}
        with self.transaction() as c:
            serving = self._serving(c)
            left = c.execute(select(schema.batches).where(B.state == "open").order_by(B.id).limit(1)).one_or_none()
            if left is not None:
                if left.lease_until is not None and left.lease_until >= now:
                    return None  # its trainer is alive
                if left.attempts < BATCH_ATTEMPTS:
                    again = lease | {"attempts": left.attempts + 1}
                    c.execute(update(schema.batches).where(B.id == left.id).values(again))
                    return Batch(left.id, token, left.parent, self._samples(c, unpack_json(left.turn_ids)))
                reason = f"its trainer ended {left.attempts} times without coming further"
                reason += f"; the last time: {left.last_error}" if left.last_error else ""
                log.error("batch %d is given up: %s", left.id, reason)
                self._refuse(c, left.id, {"accepted": False, "reasons": [reason]}, {}, Exclusion.FAILED_IN_TRAINING)
            rows = c.execute(
                select(T.id, T.version, schema.samples.c.created_at)
                .join(schema.samples, schema.samples.c.turn_id == T.id)
                .where(T.state == TurnState.READY)
                .order_by(schema.samples.c.created_at, T.id)
                .limit(max(_BATCH_SCAN, train.max_batch))
            ).all()
            fresh = []
            for row in rows:
                if self._versions_behind(c, row.version, serving) > train.max_staleness:
                    self.move(c, row.id, TurnState.EXCLUDED, exclusion=Exclusion.STALE)
                else:
                    fresh.append(row)
            old_enough = bool(fresh) and now - fresh[0].created_at >= train.max_age_s
            if not fresh or (len(fresh) < train.min_batch and not old_enough):
                return None
            ids = [row.id for row in fresh[: train.max_batch]]
            batch_id = c.execute(
                insert(schema.batches)
                .values(state="open", parent=serving, turn_ids=pack_json(ids), created_at=now, attempts=1, **lease)
                .returning(B.id)
            ).scalar_one()
            for turn_id in ids:
                self.move(c, turn_id, TurnState.LEASED, batch_id=batch_id)
            self.log(c, "batch", None, {"batch": batch_id, "parent": serving, "turns": ids})
            return Batch(batch_id, token, serving, self._samples(c, ids))

    def renew_batch(self, batch: Batch, lease_s: float) -> None:
        """Keep a batch for longer. Raises LeaseLost."""
        with self.transaction() as c:
            self._hold_batch(c, batch)
            c.execute(update(schema.batches).where(B.id == batch.id).values(lease_until=self.clock() + lease_s))

    def release_batch(self, batch: Batch) -> None:
        """Put a batch's samples back to ready, because the step cannot be done now. Raises LeaseLost."""
        with self.transaction() as c:
            self._hold_batch(c, batch)
            self._release(c, batch.id)

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

    def finish_batch(self, batch: Batch, version: PolicyVersion, dropped: Mapping[str, str] | None = None) -> None:
        """Publish a version and mark its samples trained, in one transaction. Raises LeaseLost.

        ``dropped`` are turns of the batch that are no part of the version, with the reason of each.
        """
        now = self.clock()
        with self.transaction() as c:
            self._hold_batch(c, batch)
            c.execute(
                insert(schema.versions).values(
                    number=version.number,
                    parent=batch.parent,
                    path=version.path,
                    batch_id=batch.id,
                    metrics=pack_json(version.metrics),
                    gate=pack_json(version.gate),
                    created_at=version.created_at,
                    published_at=now,
                )
            )
            for turn_id in self._leased(c, batch.id):
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
            self.log(c, "version", None, {"version": version.number, "metrics": version.metrics, "gate": version.gate})

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
        verdicts = schema.verdicts.c
        by_person = verdicts.judge == "person"
        rank = func.row_number().over(partition_by=verdicts.turn_id, order_by=(by_person.desc(), verdicts.id.desc()))
        ranked = select(verdicts.id, verdicts.turn_id, verdicts.score, rank.label("rank")).subquery()
        with self.reading() as c:
            ids = (
                c.execute(
                    select(ranked.c.turn_id)
                    .join(schema.turns, ranked.c.turn_id == T.id)
                    .where(
                        ranked.c.rank == 1,
                        ranked.c.score == 1,
                        T.kind == TurnKind.MAIN,
                        T.response_tokens > 0,
                        T.id.not_in(list(exclude)),
                        or_(T.exclusion.is_(None), T.exclusion.in_(PROBED)),
                    )
                    .order_by(ranked.c.id.desc())
                    .limit(limit)
                )
                .scalars()
                .all()
            )
            return self._samples(c, ids)

    def next_version_number(self) -> int:
        """The number of the next version: one more than the highest there ever was."""
        with self.reading() as c:
            return c.execute(select(func.coalesce(func.max(V.number), 0))).scalar_one() + 1

    def _hold_batch(self, c: Connection, batch: Batch) -> None:
        row = c.execute(select(B.state, B.lease_token).where(B.id == batch.id)).one_or_none()
        if row is None or row.state != "open" or row.lease_token != batch.lease_token:
            raise LeaseLost(f"batch {batch.id} is no longer leased to this trainer")

    def _leased(self, c: Connection, batch: int) -> Sequence[str]:
        return c.execute(select(T.id).where(and_(T.batch_id == batch, T.state == TurnState.LEASED))).scalars().all()

    def _release(self, c: Connection, batch: int) -> None:
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
            _, prompt_ids = self.read_context(c, row)
            found[row.id] = Sample(
                turn_id=row.id,
                session_id=row.session_id,
                prompt_ids=prompt_ids,
                response_ids=unpack_ids(row.response_ids),
                logprobs=unpack_logprobs(row.logprobs),
                temperature=row.temperature,
                version=row.version,
                reward=row.reward or 0.0,
                hint=row.hint,
                hint_at=row.hint_at,
            )
        return [found[turn_id] for turn_id in turn_ids if turn_id in found]

    def _serving(self, c: Connection) -> int:
        """The number of the version that serves: the last one published or made to serve again; 0 is the base model."""
        since = func.coalesce(V.served_at, V.published_at)
        last = select(V.number).where(since > NOT_SERVING).order_by(since.desc(), V.number.desc()).limit(1)
        return c.execute(last).scalar_one_or_none() or BASE_VERSION

    def _versions_behind(self, c: Connection, version: int, serving: int) -> int:
        if version == serving:
            return 0
        return c.execute(select(func.count()).where(and_(V.number > version, V.number <= serving))).scalar_one()
