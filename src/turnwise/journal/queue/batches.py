"""Batches: how a trainer takes samples from the journal and gives back a version, without losing any or training twice.

A lease is an owner, a token and a deadline on the batch's row. Whoever holds an older token than the row's gets
LeaseLost and must drop the work; a trainer that dies simply lets its lease run out. Deadlines are of the clock that all
who share the journal have (clocks.py), and one that is further away than any lease lasts is over.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, and_, exists, insert, or_, select, update

from turnwise.errors import LeaseLost
from turnwise.journal import schema
from turnwise.journal.clocks import one_less, set_meta
from turnwise.journal.packing import pack_json, unpack_json
from turnwise.journal.queue.choosing import choose, is_fresh, share_places, with_silent
from turnwise.journal.queue.refusals import configuration, give_back, in_a_row, revive
from turnwise.journal.queue.samples import samples_of
from turnwise.journal.queue.serving import last_number, next_in_line, serving
from turnwise.journal.queue.verdicts import Verdicts
from turnwise.journal.rollouts.claiming import groups_used, ready_groups
from turnwise.journal.skills.taught import had_lessons
from turnwise.journal.store import Store
from turnwise.types import Batch, Exclusion, PolicyVersion, Sample, TurnState

log = logging.getLogger(__name__)

T, B = schema.turns.c, schema.batches.c
_MOST_EXCLUDED = 64
"""Samples that one claim excludes as stale or as needless; the next claims do the rest, so that no request waits."""
BATCH_ATTEMPTS = 3
"""Trainers that a batch may end without having come further; then it is given up, and the next one has its turn."""
REBUILDING = "rebuild-"
"""How the runs begin that rebuild versions."""
LAST_HINTS = 32
"""Hints that a batch comes with: what the person asked for of late, also of turns that were trained on before."""
PROBED = (Exclusion.SET_ASIDE, Exclusion.STALE, Exclusion.NO_SIGNAL, Exclusion.PINNED_VERSION)
"""Exclusions that say nothing against an answer: it is never trained on, and one that the gate looks at."""
PROBES = and_(schema.GOOD, T.exclusion.in_(PROBED), ~exists().where(schema.provenance.c.turn_id == T.id))
"""The turns that the gate may look at: those that no version learned from."""


class Batches:
    """The trainer's side of the journal."""

    def __init__(self, store: Store, verdicts: Verdicts) -> None:
        self._store = store
        self._verdicts = verdicts

    def claim(self, worker: str, lease_s: float, at_once: bool = False) -> Batch | None:
        """Lease the next batch, or None when too few samples that teach something are ready and none is old enough.

        `at_once`: a person asked for it, so that one such sample is enough.

        A batch whose trainer died comes first: same samples, same order, same parent, so that the step is repeated
        exactly. Where BATCH_ATTEMPTS trainers died over it, it is refused instead.
        Turns that carry the KL term alone only go along. Everything that is not taken stays ready; of those, the newest
        `max_batch`. Streams of rollouts that have enough whole groups are in it, too, or make one alone.
        """
        token = uuid.uuid4().hex
        leased = self._lease_batch(worker, lease_s, token, at_once)
        if leased is None:
            return None
        batch_id, parent, ids = leased
        with self._store.reading() as c:  # outside of the transaction that leased them: others may write meanwhile
            told = self._last_hints(c)
            hints, turns = [hint for _, hint in told], [turn_id for turn_id, _ in told]
            return Batch(batch_id, token, parent, samples_of(c, ids), hints, turns, samples_of(c, turns))

    def _lease_batch(self, worker: str, lease_s: float, token: str, at_once: bool) -> tuple[int, int, list[str]] | None:
        """The id, the parent and the turns of the batch that is leased now."""
        train = self._store.config.train
        with self._store.transaction() as c:
            now = self._store.now(c)
            lease = {"lease_owner": worker, "lease_token": token, "lease_until": now + lease_s}
            now_serving = serving(c)
            left = c.execute(select(schema.batches).where(B.state == "open").order_by(B.id).limit(1)).one_or_none()
            if left is not None:
                if self.is_held(c, left, lease_s):
                    return None  # its trainer is alive
                if left.source is not None:  # a fine-tuning that was killed: it goes on by a command, or never
                    self.put_back(c, left.id)
                elif left.attempts < BATCH_ATTEMPTS:
                    again = lease | {"attempts": left.attempts + 1}
                    c.execute(update(schema.batches).where(B.id == left.id).values(again))
                    return left.id, left.parent, unpack_json(left.turn_ids)
                else:
                    self._give_up(c, left)
            revive(self._store, c, _MOST_EXCLUDED)
            found = choose(c, now_serving, train, configuration(self._store.config), _MOST_EXCLUDED)
            self._store.move_all(c, found.stale, TurnState.EXCLUDED, Exclusion.STALE)
            needless = found.silent[: max(0, len(found.silent) - train.max_batch)]
            self._store.move_all(c, needless, TurnState.EXCLUDED, Exclusion.NO_SIGNAL)
            new = [row.id for row in found.teaching]
            enough = at_once or len(new) >= train.min_batch
            if self._waits_for_probes(c):
                return None
            fresh: list[Any] = []
            if new and (enough or self._old_enough(c, new, now, train.max_age_s)):
                teaching = share_places(found.teaching, found.refused, train.max_batch)
                fresh = with_silent(teaching, found.silent[len(needless) :], train.max_batch)
            fresh += ready_groups(
                self._store, c, lambda most, version: is_fresh(c, version, now_serving, most), at_once, bool(fresh)
            )
            if not fresh:
                return None
            ids = [row.id for row in fresh]
            batch_id = c.execute(
                insert(schema.batches)
                .values(
                    state="open",
                    parent=now_serving,
                    turn_ids=pack_json(ids),
                    created_at=self._store.clock(),
                    attempts=1,
                )
                .values(lease)
                .returning(B.id)
            ).scalar_one()
            self._store.move_all(c, fresh, TurnState.LEASED, batch_id=batch_id)
            self._store.log(c, "batch", None, {"batch": batch_id, "parent": now_serving, "turns": ids})
            return batch_id, now_serving, ids

    def is_held(self, c: Connection, left: Row[Any], lease_s: float) -> bool:
        """Whether the trainer of an open batch is alive. A deadline further away than any lease lasts is over."""
        now, longest = self._store.now(c), max(lease_s, self._store.config.train.lease_s)
        return left.lease_until is not None and now <= left.lease_until <= now + longest

    def _give_up(self, c: Connection, left: Row[Any]) -> None:
        reason = f"its trainer ended {left.attempts} times before it was done"
        reason += f"; the last time: {left.last_error}" if left.last_error else ""
        log.error("batch %d is given up: %s", left.id, reason)
        self._refuse(c, left.id, {"accepted": False, "reasons": [reason]}, {}, Exclusion.FAILED_IN_TRAINING)

    @staticmethod
    def _old_enough(c: Connection, ids: Sequence[str], now: float, max_age_s: float) -> bool:
        """Whether any sample waited for long enough to be trained on with less than a whole batch.

        One of an earlier boot has, and one of a time to come was not made in this boot.
        """
        made = schema.samples.c.ready_mono
        made_at = c.execute(select(made).where(schema.samples.c.turn_id.in_(ids))).scalars()
        return any(at is None or not 0 <= now - at < max_age_s for at in made_at)

    def renew(self, batch: Batch, lease_s: float) -> None:
        """Keep a batch for longer. Raises LeaseLost."""
        with self._store.transaction() as c:
            self.hold(c, batch)
            c.execute(update(schema.batches).where(B.id == batch.id).values(lease_until=self._store.now(c) + lease_s))

    def release(self, batch: Batch) -> None:
        """Put a batch's samples back to ready, because the step cannot be done now. Raises LeaseLost."""
        with self._store.transaction() as c:
            self.hold(c, batch)
            self.put_back(c, batch.id)

    def suspend(self, batch: Batch) -> None:
        """Let go of a batch without undoing it: the next trainer resumes the same step at once. Raises LeaseLost."""
        with self._store.transaction() as c:
            self.hold(c, batch)
            uncounted = {"lease_until": None, "attempts": one_less(B.attempts)}
            c.execute(update(schema.batches).where(B.id == batch.id).values(uncounted))

    def failed(self, batch: Batch, error: str) -> None:
        """Say what ended the trainer of a batch, and let the next one try at once. Raises LeaseLost."""
        with self._store.transaction() as c:
            self.hold(c, batch)
            c.execute(update(schema.batches).where(B.id == batch.id).values(lease_until=None, last_error=error))

    def reserve_version(self, batch: Batch, above: int = 0) -> int:
        """The number of the version that a batch becomes: the same for every trainer that takes the batch up.

        It is higher than any number that was ever given out, and than `above`: where an older journal was put back,
        there may be directories of later versions. Raises LeaseLost.
        """
        with self._store.transaction() as c:
            self.hold(c, batch)
            number = c.execute(select(B.version).where(B.id == batch.id)).scalar_one()
            if number is None:
                number = max(last_number(c), above) + 1
                c.execute(update(schema.batches).where(B.id == batch.id).values(version=number))
                set_meta(c, "last_version", number)
            return number

    def finish(
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
        with self._store.transaction() as c:
            self.hold(c, batch)
            leased = self._leased(c, batch.id)
            c.execute(
                insert(schema.versions).values(
                    turn_ids=pack_json(sorted((set(leased) - (dropped or {}).keys()) | _taught(batch, version))),
                    number=version.number,
                    parent=batch.parent,
                    path=version.path,
                    batch_id=batch.id,
                    metrics=pack_json(version.metrics),
                    gate=pack_json(version.gate),
                    created_at=version.created_at,
                    published_at=self._store.clock(),
                    serve_seq=next_in_line(c),
                )
            )
            self._exclude(c, {i: (dropped or {})[i] for i in leased if i in (dropped or {})})
            for turn_id in self._leased(c, batch.id):
                self._store.move(c, turn_id, TurnState.TRAINED)
            groups_used(c, leased)
            self._end_batch(
                c,
                batch.id,
                "done",
                version=version.number,
                metrics=pack_json(version.metrics),
                gate=pack_json(version.gate),
            )
            self._verdicts.use_late_ones(c, leased)
            set_meta(c, "last_version", last_number(c))
            self._store.log(
                c, "version", None, {"version": version.number, "metrics": version.metrics, "gate": version.gate}
            )
            if put_in_place is not None:
                put_in_place()

    def refuse(
        self,
        batch: Batch,
        gate: dict[str, Any],
        metrics: dict[str, float],
        exclusion: Exclusion | None = None,
        dropped: Mapping[str, str] | None = None,
    ) -> None:
        """Nothing is published of the batch: its samples are ready again, or spent for ``exclusion``.

        ``dropped`` are turns of it that cannot be trained on, with the reason of each: they do not come back.
        Raises LeaseLost.
        """
        with self._store.transaction() as c:
            self.hold(c, batch)
            self._exclude(c, {i: (dropped or {})[i] for i in self._leased(c, batch.id) if i in (dropped or {})})
            self._refuse(c, batch.id, gate, metrics, exclusion)

    def gate_probes(self, limit: int, exclude: Iterable[str]) -> list[Sample]:
        """The newest well-judged turns that are never trained on: what a candidate version must not get worse at.

        They are of sessions that are set aside, or something else kept them from being trained on. Of several verdicts
        on a turn the person's last one counts, and the judge's last one where there is none.
        """
        query = select(T.id).where(PROBES, T.id.not_in(list(exclude))).order_by(T.good_verdict.desc()).limit(limit)
        with self._store.reading() as c:
            ids = c.execute(query).scalars().all()
            return samples_of(c, ids)

    def read(self, turn_ids: Sequence[str]) -> list[Sample]:
        """These turns as a trainer sees them, those that are there, in this order."""
        with self._store.reading() as c:
            return samples_of(c, turn_ids)

    def waits_for(self) -> str | None:
        """What has to come before anything is trained at all, as a sentence; None where training may begin."""
        with self._store.reading() as c:
            tuned = c.execute(select(schema.batches).where(B.state == "open", B.source.is_not(None))).one_or_none()
            if tuned is not None and self.is_held(c, tuned, self._store.config.train.lease_s):
                return f"{who_holds(tuned)} has the trainer's place; training goes on when it has ended"
            if not self._waits_for_probes(c):
                return None
        return (
            "nothing is trained before a session was set aside for the gate and judged well "
            '(gate.unmeasured = hold); set gate.unmeasured = "pass" to begin without one'
        )

    def _waits_for_probes(self, c: Connection) -> bool:
        """Whether the gate would hold whatever is trained, since it has no set-aside turn to look at yet."""
        gate = self._store.config.gate
        if not gate.enabled or gate.unmeasured != "hold":
            return False
        return c.execute(select(T.id).where(PROBES).limit(1)).one_or_none() is None

    @staticmethod
    def _last_hints(c: Connection) -> list[tuple[str, str]]:
        """The last hints that were given, with their turns, oldest first; late ones on turns long trained, too.

        None of a failure that a skill was made from, for nothing is trained on it; a wish is learned all the same, also
        where the turn that it was said of is such a failure.
        """
        given, made = schema.verdicts.c, schema.skill_sources.c
        newest = select(given.turn_id, given.hint).where(given.hint.is_not(None)).order_by(given.id.desc())
        of_turn = made.turn_id == given.turn_id
        newest = newest.where(or_(~exists().where(of_turn, made.support), exists().where(of_turn, ~made.support)))
        newest = newest.where(~exists().where(T.id == given.turn_id, T.step.is_not(None)))  # no person wished for it
        return [(row.turn_id, row.hint) for row in reversed(c.execute(newest.limit(LAST_HINTS)).all())]

    def any_open(self) -> bool:
        """Whether a batch is being trained, or was left by a trainer that ended."""
        with self._store.reading() as c:
            return c.execute(select(B.id).where(B.state == "open").limit(1)).one_or_none() is not None

    def refused_in_a_row(self) -> dict[str, Any]:
        """How many batches the gate refused since the last version, and why the newest of them."""
        with self._store.reading() as c:
            return in_a_row(c)

    def hold(self, c: Connection, batch: Batch) -> None:
        """Raises LeaseLost where the batch is another's by now, or over."""
        row = c.execute(select(B.state, B.lease_token).where(B.id == batch.id)).one_or_none()
        if row is None or row.state != "open" or row.lease_token != batch.lease_token:
            raise LeaseLost(f"batch {batch.id} is no longer leased to this trainer")

    def _leased(self, c: Connection, batch: int) -> Sequence[str]:
        return c.execute(select(T.id).where(and_(T.batch_id == batch, T.state == TurnState.LEASED))).scalars().all()

    def put_back(self, c: Connection, batch: int) -> None:
        """Put the samples of an open batch back to ready; who holds it learns that at their next step."""
        leased = self._leased(c, batch)
        for turn_id in leased:
            self._store.move(c, turn_id, TurnState.READY, batch_id=None)
        self._end_batch(c, batch, "released")
        self._verdicts.use_late_ones(c, leased)

    def _refuse(
        self, c: Connection, batch: int, gate: dict[str, Any], metrics: dict[str, float], exclusion: Exclusion | None
    ) -> None:
        leased = self._leased(c, batch)
        if exclusion is None:
            give_back(self._store, c, leased, gate)
        else:
            self._exclude(c, dict.fromkeys(leased, "; ".join(gate.get("reasons", [])) or None), exclusion)
        self._end_batch(c, batch, "refused", metrics=pack_json(metrics), gate=pack_json(gate))
        self._verdicts.use_late_ones(c, leased)
        self._store.log(c, "version", None, {"version": None, "batch": batch, "metrics": metrics, "gate": gate})

    def _exclude(
        self, c: Connection, why: Mapping[str, str | None], exclusion: Exclusion = Exclusion.FAILED_IN_TRAINING
    ) -> None:
        """Exclude turns, each with its own reason."""
        for turn_id, reason in why.items():
            self._store.move(c, turn_id, TurnState.EXCLUDED, exclusion=exclusion, last_error=reason)

    def _end_batch(self, c: Connection, batch: int, state: str, **columns: Any) -> None:
        columns |= {"state": state, "finished_at": self._store.clock(), "lease_until": None}
        c.execute(update(schema.batches).where(B.id == batch).values(columns))


def who_holds(left: Row[Any]) -> str:
    """The command that holds the trainer's place by an open batch without turns, as a person types it."""
    run = str(unpack_json(left.source).get("run", "")) if left.source else ""
    return "`turnwise forget --retrain`" if run.startswith(REBUILDING) else "`turnwise sft`"


def _taught(batch: Batch, version: PolicyVersion) -> set[str]:
    """The turns whose hints a version learned from beside its samples: where it had lessons, all that it was told."""
    return set(batch.hint_turns) if had_lessons(version.metrics) else set()
