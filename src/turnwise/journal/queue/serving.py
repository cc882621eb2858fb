"""Which version serves: the last one that was published or made to serve again."""

from __future__ import annotations

from sqlalchemy import Connection, func, select

from turnwise.journal import schema
from turnwise.journal.clocks import meta
from turnwise.journal.schema import NOT_SERVING
from turnwise.sampling import oldest_fresh
from turnwise.types import BASE_VERSION

V = schema.versions.c


def serving(c: Connection) -> int:
    """The number of the version that serves: the last one published or made to serve again; 0 is the base model."""
    last = select(V.number).where(V.serve_seq > NOT_SERVING).order_by(V.serve_seq.desc()).limit(1)
    return c.execute(last).scalar_one_or_none() or BASE_VERSION


def first_fresh(c: Connection, serving: int, max_staleness: int) -> int:
    """The lowest version whose samples are not stale."""
    newest = select(V.number).where(V.number <= serving).order_by(V.number.desc())
    return oldest_fresh(c.execute(newest.limit(max_staleness + 1)).scalars().all(), max_staleness)


def next_in_line(c: Connection) -> int:
    """The `serve_seq` of a version that serves from now on."""
    return c.execute(select(func.coalesce(func.max(V.serve_seq), NOT_SERVING))).scalar_one() + 1


def last_number(c: Connection) -> int:
    """The highest number that a version was ever given."""
    recorded = c.execute(select(func.coalesce(func.max(V.number), 0))).scalar_one()
    return max(recorded, int(meta(c, "last_version") or 0))
