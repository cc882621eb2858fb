"""How long turns, versions and events are kept. Everything is kept unless a person sets a limit.

What training still needs never goes: turns that are not at the end of their way, the well-judged ones that the gate
looks at, and what a kept turn is stored on. Which turns and sessions a version learned from stays known. Work is done
in short transactions, so that no request waits for long.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import Connection, delete, exists, func, literal_column, select, true, update

from turnwise.config import Config
from turnwise.journal import schema
from turnwise.journal.deletion.erasing import erase_turns, keep_provenance
from turnwise.journal.journal import Journal
from turnwise.journal.packing import pack_json
from turnwise.journal.pictures import sweep_pictures
from turnwise.journal.queue.batches import PROBES
from turnwise.journal.records.edits import rewrite_records
from turnwise.journal.rollouts.trajectories import drop_trajectories
from turnwise.journal.schema import NOT_SERVING
from turnwise.journal.turns.set_aside import note_deleted
from turnwise.types import TurnState

log = logging.getLogger(__name__)

T, S, V, B, E = schema.turns.c, schema.sessions.c, schema.versions.c, schema.batches.c, schema.events.c

AT_ONCE = 25
"""Turns that go in one transaction."""
EVERY_S = 600.0
STEPS_A_TICK = 20
"""The gateway applies the limits this often, and so many transactions a second until it is done."""
PROBES_KEPT = 4
"""Well-judged turns kept for the gate, in multiples of gate.probes."""
MOST_EVENTS = 200_000
"""Events that may wait for records.jsonl; when it cannot be written for long, the oldest are dropped."""
DAY_S = 86_400.0
PINNED_KEPT_S = 7 * DAY_S
"""A version that was asked for by its name is kept for so long after it."""
CLOCK_LEEWAY_S = 3600.0
"""How far the wall clock may be put forward while the gateway runs before it is no longer believed."""
LONG_PAUSE_DAYS = 30.0
OVERHEAD = 1200
"""Bytes of a turn beside its texts and ids, in the row and in the indexes: for what a dry run says."""
EVENT_OVERHEAD = 30

_DONE = (TurnState.TRAINED, TurnState.EXCLUDED)
_BLOBS = (T.messages, T.tools, T.params, T.answer, T.prompt_ids, T.response_ids, T.logprobs, T.next_state)
_SIZE = sum((func.coalesce(func.length(column), 0) for column in _BLOBS), literal_column("0"))


@dataclass
class Pruned:
    """What went, or would go."""

    turns: int = 0
    sessions: int = 0
    bytes: int = 0
    oldest: float | None = None
    newest: float | None = None


class Prune:
    """One pass over the turns, oldest first. `before` is in Unix seconds, `keep_bytes` a size of rows and indexes.

    Order is that in which turns were recorded: a clock that jumped changes which are old, not where the pass is.
    """

    def __init__(self, journal: Journal, before: float | None, keep_bytes: int | None) -> None:
        self.done = Pruned()
        self._journal = journal
        self._before = before
        self._keep_bytes = keep_bytes
        self._after = 0
        self._now = journal.store.clock()
        with journal.store.reading() as c:
            # What waits for records.jsonl goes by itself: it is no reason to delete turns.
            self._outbox = 0 if keep_bytes is None else _outbox_bytes(c)
            self._used = self._used_bytes(c)
            probes = select(T.id).where(PROBES).order_by(T.good_verdict.desc())
            self._probes = set(c.execute(probes.limit(PROBES_KEPT * journal.store.config.gate.probes)).scalars())

    def step(self, dry_run: bool = False) -> bool:
        """Look at the next turns, and delete what may go; False once there is nothing more to do."""
        if not dry_run:
            with self._journal.store.transaction() as c:
                return self._step(c, dry_run=False)
        with self._journal.store.reading() as c:
            return self._step(c, dry_run=True)

    def _step(self, c: Connection, dry_run: bool) -> bool:
        query = select(T.seq, T.id, T.session_id, T.state, T.created_at, _SIZE.label("size"))
        rows = c.execute(query.where(T.seq > self._after).order_by(T.seq).limit(AT_ONCE)).all()
        over = self._keep_bytes is not None and self._used > self._keep_bytes
        old = [row for row in rows if over or (self._before is not None and row.created_at < self._before)]
        if not old and not any(row.created_at > self._now for row in rows):
            return False  # what follows is younger still, unless the clock was wrong: a time to come tells nothing
        self._after = rows[-1].seq
        going = [row for row in old if row.state in _DONE and row.id not in self._probes]
        if not going:
            return True
        sessions = {row.session_id for row in going}
        frees_at_once = self._journal.store.database.frees_at_once
        if dry_run or not frees_at_once:
            self._used -= sum(row.size + OVERHEAD for row in going)
        if not dry_run:
            ids = [row.id for row in going]
            keep_provenance(c, ids)
            erase_turns(self._journal.store, c, ids)
            self.done.sessions += self._drop_empty(c, sessions)
            if frees_at_once:
                self._used = self._used_bytes(c)
        self.done.turns += len(going)
        self.done.bytes += sum(row.size + OVERHEAD for row in going)
        times = [row.created_at for row in going]
        self.done.oldest = min(times + ([self.done.oldest] if self.done.oldest is not None else []))
        self.done.newest = max(times + ([self.done.newest] if self.done.newest is not None else []))
        return True

    def _used_bytes(self, c: Connection) -> int:
        """What counts against the limit, if there is one: PostgreSQL reads every turn for it."""
        return 0 if self._keep_bytes is None else self._journal.store.database.used_bytes(c) - self._outbox

    def _drop_empty(self, c: Connection, sessions: set[str]) -> int:
        empty = select(S.id).where(S.id.in_(sessions), S.closed_at.is_not(None), ~exists().where(T.session_id == S.id))
        going = c.execute(empty).scalars().all()
        note_deleted(c, going, self._journal.store.config.gate, may_return=True)
        drop_trajectories(c, going)
        c.execute(delete(schema.sessions).where(S.id.in_(going)))
        return len(going)


def _outbox_bytes(c: Connection) -> int:
    each = func.length(E.data) + func.coalesce(func.length(E.turn_id), 0) + EVENT_OVERHEAD
    return c.execute(select(func.coalesce(func.sum(each), 0))).scalar_one()


def prune(journal: Journal, before: float | None, keep_bytes: int | None, dry_run: bool = False) -> Pruned:
    """Delete turns that are older, or as many of the oldest as it takes; with `dry_run` only say what would go."""
    work = Prune(journal, before, keep_bytes)
    while work.step(dry_run):
        pass
    if not dry_run:
        sweep_pictures(journal.store)
    return work.done


def prune_records(config: Config, before: float, dry_run: bool = False) -> int:
    """Drop the lines of records.jsonl from before that time (Unix seconds); gives their number."""
    return rewrite_records(config.records_path, lambda record: not record.get("at", before) < before, dry_run)


def prune_versions(journal: Journal, keep: int, dry_run: bool = False) -> list[int]:
    """Delete the weights of all versions but the newest `keep` and those in use; what is known of them stays.

    In use are the last `keep` that served, the parent of a batch under way, and what was lately asked for by its name.
    """
    now = journal.store.clock()
    with journal.store.transaction() as c:
        newest = select(V.number).order_by(V.number.desc()).limit(keep)
        served = select(V.number).where(V.serve_seq > NOT_SERVING).order_by(V.serve_seq.desc()).limit(keep)
        named = exists().where(T.pinned == true(), T.version == V.number, T.created_at > now - PINNED_KEPT_S)
        old = select(V.number).where(
            V.pruned_at.is_(None),
            V.number.not_in(newest),
            V.number.not_in(served),
            V.number.not_in(select(B.parent).where(B.state == "open")),
            ~named,
        )
        going = list(c.execute(old.order_by(V.number)).scalars())
        if going and not dry_run:
            c.execute(update(schema.versions).where(V.number.in_(going)).values(pruned_at=now))
    if not dry_run:
        delete_pruned(journal)
    return going


def delete_pruned(journal: Journal) -> None:
    """Delete what is there of pruned versions, also where an earlier attempt was cut off."""
    with journal.store.reading() as c:
        pruned = set(c.execute(select(V.number).where(V.pruned_at.is_not(None))).scalars())
    for folder in journal.store.config.versions_dir.glob("v*"):
        if folder.name[1:].isdigit() and int(folder.name[1:]) in pruned:
            shutil.rmtree(folder)


def bound_outbox(journal: Journal, most: int = MOST_EVENTS) -> int:
    """Drop the oldest events when more than `most` wait for records.jsonl; gives their number."""
    with journal.store.reading() as c:
        first = c.execute(select(func.min(E.id))).scalar_one()  # each alone is found at an end of the table
        last = c.execute(select(func.max(E.id))).scalar_one()
    if first is None or last is None or last - first < most:
        return 0
    upto = last - most // 2
    for start in range(first, upto, 5000):
        with journal.store.transaction() as c:
            c.execute(delete(schema.events).where(E.id < min(start + 5000, upto)))
    with journal.store.transaction() as c:
        lost = pack_json({"first": first, "last": upto - 1})
        c.execute(schema.events.insert().values(at=journal.store.clock(), kind="gap", data=lost))
    log.warning("records.jsonl could not be written for long: events %d to %d will be missing in it", first, upto - 1)
    return upto - first


def _believed(journal: Journal) -> float:
    """The wall clock, but no more than a day past the newest turn that is not of a time to come.

    Turns behind a long pause may be of a clock that is ahead: they count once there are some of more than a day.
    """
    now = journal.store.clock()
    pause = DAY_S * max(journal.store.config.journal.keep_days or 0.0, LONG_PAUSE_DAYS)
    with journal.store.reading() as c:
        newest = _newest_turn(c, now)
        before = None if newest is None else _newest_turn(c, newest - DAY_S)
    if newest is not None and before is not None and newest - before > pause:
        newest = before
    return now if newest is None else min(now, newest + DAY_S)


def _newest_turn(c: Connection, until: float) -> float | None:
    return c.execute(select(T.created_at).where(T.created_at <= until).order_by(T.seq.desc()).limit(1)).scalar()


class Keeper:
    """Applies the configured limits, a little at each tick.

    `steady` is a clock in seconds that nobody sets. Where the wall clock jumped ahead of it, turns only seem to be old:
    the age of a turn is then taken from the steady one. What the wall clock says at the start is believed up to a day
    past the newest turn: a machine that wakes up a year ahead deletes nothing, and what was off for long catches up
    with the next start.
    """

    def __init__(self, journal: Journal, steady: Callable[[], float] = time.monotonic) -> None:
        self._journal = journal
        self._steady = steady
        self._due = steady()
        self._offset = _believed(journal) - steady()
        self._under_way: Prune | None = None

    def tick(self) -> None:
        """What is due of a round; a round begins every ten minutes."""
        limits = self._journal.store.config.journal
        if self._under_way is None:
            if self._steady() < self._due:
                return
            self._due = self._steady() + EVERY_S
            bound_outbox(self._journal)
            sweep_pictures(self._journal.store)
            if keep := self._journal.store.config.keep_versions:
                prune_versions(self._journal, keep)
            if limits.keep_days is None and limits.keep_mb is None:
                return
            before = None
            if limits.keep_days is not None:
                before = (
                    min(self._journal.store.clock(), self._steady() + self._offset + CLOCK_LEEWAY_S)
                    - limits.keep_days * DAY_S
                )
            keep_bytes = None if limits.keep_mb is None else int(limits.keep_mb * 1e6)
            self._under_way = Prune(self._journal, before, keep_bytes)
        for _ in range(STEPS_A_TICK):
            if not self._under_way.step():
                if self._under_way.done.turns:
                    log.info("%d turns beyond journal.keep_days or keep_mb are deleted", self._under_way.done.turns)
                self._under_way = None
                return
