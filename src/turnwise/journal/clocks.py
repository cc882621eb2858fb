"""Which clock decides what: deadlines stand on the monotonic clock of this boot, an order is a sequence, and the wall
clock is only shown.

`time.monotonic` is one clock for all processes of a machine between two starts of it, and no person, no time server and
no daylight saving moves it. A number on it means nothing after the next boot, so the journal knows of which boot its
numbers are (`meta.boot`), and lets go of all of them when it is opened under another one. While a computer sleeps the
clock may stand still: a sleep counts neither as idle time nor against a lease.

A journal on a server is shared by machines, and deadlines in it are of the server's clock, which no boot of theirs
begins anew. It is a wall clock: a step of it ends leases early, or late by no more than the longest one.
"""

from __future__ import annotations

from pathlib import Path

import psutil
from sqlalchemy import ColumnElement, Connection, and_, case, func, or_, select, update

from turnwise.journal import schema
from turnwise.journal.dialects.sql import insert_missing, upsert
from turnwise.journal.schema.rollouts import task_groups

T, S, M = schema.turns.c, schema.sessions.c, schema.meta.c

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
LONGEST_RETRY_S = 600.0
"""Most seconds until a turn is tried again. A wait beyond it is none that was ever asked for: it is over."""


def boot_id() -> str:
    """What this run of the machine is called. Two processes of one boot get the same, another boot gets another.

    Where the kernel gives no id (macOS), the minute of the start stands for it. The system may work that out from the
    wall clock, so that a step of the clock looks like another boot: leases end early then, which costs work done twice
    and is refused at its second end, as for every lease that was lost.
    """
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return f"started-{round(psutil.boot_time() / 60)}"


def is_free(until: ColumnElement[float | None], now: float, longest_s: float) -> ColumnElement[bool]:
    """Whether a lease is over: none, run out, or further away than any lease of this configuration can be."""
    return or_(until.is_(None), until < now, until > now + longest_s)


def is_due(retry_at: ColumnElement[float], now: float) -> ColumnElement[bool]:
    """Whether a wait is over: its time has come, or it is longer than any wait can be."""
    return or_(retry_at <= now, retry_at > now + LONGEST_RETRY_S)


def one_less(attempts: ColumnElement[int]) -> ColumnElement[int]:
    """One try fewer, as one that came to no end by its own fault; never less than none."""
    return case((attempts > 0, attempts - 1), else_=0)


def meta(c: Connection, name: str) -> str | None:
    """A fact about the journal as a whole, or None."""
    return c.execute(select(M.value).where(M.name == name)).scalar_one_or_none()


def set_meta(c: Connection, name: str, value: object) -> None:
    upsert(c, schema.meta, {"name": name, "value": str(value)})


def enter_boot(c: Connection, boot: str, now: float) -> None:
    """Make what stands in the journal mean something on this boot's monotonic clock. No loop of the last boot lives.

    Leases end, waits are over. Sessions count as seen now, and groups of rollouts as begun. Samples and turns of before
    are told apart: a sample from before has waited long enough, and a turn from before is too old to be a retry's.
    """
    end_leases(c, now)
    c.execute(update(schema.sessions).where(S.closed_at.is_(None)).values(seen_mono=now))
    ready = select(T.id).where(schema.READY)
    c.execute(update(schema.samples).where(schema.samples.c.turn_id.in_(ready)).values(ready_mono=None))
    c.execute(update(schema.loops).values(seen_mono=None))
    c.execute(update(task_groups).where(task_groups.c.state == "open").values(begun_mono=now))
    c.execute(update(task_groups).where(task_groups.c.state == "ready").values(ready_mono=None))
    set_meta(c, "boot_turn", last_turn(c))
    set_meta(c, "boot", boot)


def last_turn(c: Connection) -> int:
    """The place of the newest turn in their order; 0 where there is none."""
    return c.execute(select(func.coalesce(func.max(T.seq), 0)).select_from(schema.turns)).scalar_one()


def lower_boot_turn(c: Connection) -> None:
    """Keep `boot_turn` from being behind the newest turn, whose place the next one may be given."""
    last = last_turn(c)
    if int(meta(c, "boot_turn") or 0) > last:
        set_meta(c, "boot_turn", last)


def end_leases(c: Connection, now: float) -> None:
    """Take back every lease and every wait: for the supervisor, which knows that no loop of its home lives.

    Whoever lives all the same has no token any more, and learns it with the next word to the journal.
    """
    none = {"lease_owner": None, "lease_token": None, "lease_until": None}
    waiting = or_(T.lease_token.is_not(None), T.retry_at > 0)
    c.execute(update(schema.turns).where(and_(schema.JUDGING, waiting)).values({"retry_at": 0.0, **none}))
    c.execute(update(schema.batches).where(schema.batches.c.state == "open").values(none))
    c.execute(update(schema.sessions).where(S.closed_at.is_(None), S.seen_mono > now).values(seen_mono=now))


def first_meta(c: Connection, name: str, value: str) -> str:
    """A fact that is set once: the one there is, else this one from now on."""
    insert_missing(c, schema.meta, {"name": name, "value": value})
    return meta(c, name) or value
