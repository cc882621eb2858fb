"""What the status page and `turnwise status` say: the figures of the journal, and what each loop says of itself."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, select

from turnwise.alarms import reward_alarms
from turnwise.journal import schema
from turnwise.journal.counts import HINTS, UNRECOGNISED, read_counts, told
from turnwise.journal.dialects.sql import upsert
from turnwise.journal.packing import pack_json, unpack_json
from turnwise.journal.queue.choosing import count_teaching
from turnwise.journal.queue.refusals import configuration, in_a_row
from turnwise.journal.queue.serving import serving
from turnwise.journal.schema.rollouts import task_groups
from turnwise.journal.store import Store
from turnwise.journal.turns.trends import last_judged, newest_verdict
from turnwise.types import TurnState

_GROUPS = select(task_groups.c.state, func.count()).group_by(task_groups.c.state)
_LAST = select(schema.loops).where(schema.loops.c.name == bindparam("which"))


class Status:
    """Figures and heartbeats."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._alarms: tuple[int, list[dict[str, Any]]] = (-1, [])

    def say(self, loop: str, data: dict[str, Any]) -> None:
        """What a loop says of itself, with the time: its heartbeat."""
        with self._store.transaction() as c:
            self._say(c, loop, data)

    def say_unless(
        self, loop: str, data: dict[str, Any], stands: Callable[[dict[str, Any], float], bool]
    ) -> tuple[dict[str, Any], float]:
        """The same, unless what was said last (with its seconds ago) `stands`, in one transaction; gives what stands
        now."""
        with self._store.transaction() as c:
            row = c.execute(_LAST, {"which": loop}).one_or_none()
            if row is not None and stands(last := unpack_json(row.data), ago := self._ago(c, row)):
                return last, ago
            self._say(c, loop, data)
            return data, 0.0

    def say_soon(self, loop: str, data: dict[str, Any]) -> Future[None]:
        """The same with the next group of writes, for who cannot wait. Raises JournalError; so may the future."""
        return self._store.writes.submit(lambda c: self._say(c, loop, data))

    def forget(self, loop: str) -> None:
        """Take back what one said of itself, when it has ended and is none that is always there."""
        with self._store.transaction() as c:
            c.execute(delete(schema.loops).where(schema.loops.c.name == loop))

    def last(self, loop: str) -> tuple[dict[str, Any], float] | None:
        """What a loop last said, and how many seconds ago; None where it never did."""
        with self._store.reading() as c:
            row = c.execute(_LAST, {"which": loop}).one_or_none()
            return None if row is None else (unpack_json(row.data), self._ago(c, row))

    def _say(self, c: Connection, loop: str, data: dict[str, Any]) -> None:
        now = {"updated_at": self._store.clock(), "seen_mono": self._store.now(c)}
        upsert(c, schema.loops, {"name": loop, "data": pack_json(data)} | now)

    def figures(self) -> dict[str, Any]:
        """The figures of `turnwise status`: sessions, turns by state, verdicts, samples, versions, loops."""
        with self._store.reading() as c:
            counts = read_counts(c)
            loops = c.execute(select(schema.loops)).all()
            turns = dict.fromkeys(TurnState, 0)
            for (kind, *name), n in counts.items():
                if kind == "turns":
                    turns[TurnState(name[0])] += n
            config, version = self._store.config, serving(c)
            open_sessions, closed_sessions = (counts.get(("sessions", kind), 0) for kind in ("open", "closed"))
            return {
                "sessions": {"open": open_sessions, "total": open_sessions + closed_sessions},
                "turns": {str(state): n for state, n in turns.items()},
                "unrecognised": told(c, UNRECOGNISED),
                "excluded": {name[2]: n for name, n in counts.items() if name[0] == "turns" and name[2]},
                "verdicts": {f"{name[1]} {int(name[2]):+d}": n for name, n in counts.items() if name[0] == "verdicts"},
                "hints": counts.get((HINTS,), 0),
                "samples_ready": count_teaching(c, version, config.train, configuration(config)),
                "refused_in_a_row": in_a_row(c),
                "groups": {str(state): n for state, n in c.execute(_GROUPS)},
                "version": {"number": version, "part": _part(c)},
                "versions_published": c.execute(select(func.count()).select_from(schema.versions)).scalar_one(),
                "batches": {
                    str(state): n
                    for state, n in c.execute(
                        select(schema.batches.c.state, func.count()).group_by(schema.batches.c.state)
                    )
                },
                "alarms": self._reward_alarms(c),
                "loops": {row.name: {"seconds_ago": self._ago(c, row)} | unpack_json(row.data) for row in loops},
            }

    def _reward_alarms(self, c: Connection) -> list[dict[str, Any]]:
        """What speaks against verdicts that rise; read anew where there are new verdicts."""
        newest = newest_verdict(c)
        if self._alarms[0] != newest:
            self._alarms = newest, [asdict(alarm) for alarm in reward_alarms(last_judged(c))]
        return self._alarms[1]

    def _ago(self, c: Connection, loop: Any) -> float:
        """Seconds since a loop last spoke; by the wall clock only where that was in an earlier boot of the machine."""
        if loop.seen_mono is not None and self._store.is_of_this_boot(c):
            return round(max(0.0, self._store.now(c) - loop.seen_mono), 1)
        return round(max(0.0, self._store.clock() - loop.updated_at), 1)


def _part(c: Connection) -> float:
    """How much of its step the gate let the serving version take; 1 where there is none."""
    version = schema.versions.c
    gate = c.execute(select(version.gate).where(version.number == serving(c))).scalar_one_or_none()
    return unpack_json(gate).get("alpha", 1.0) if gate else 1.0
