"""Which version serves: the last one that was published or made to serve again."""

from __future__ import annotations

from sqlalchemy import Connection, func, select

from turnwise.journal import schema
from turnwise.journal.clocks import meta
from turnwise.journal.schema import NOT_SERVING
from turnwise.types import BASE_VERSION

V = schema.versions.c


def serving(c: Connection) -> int:
    """The number of the version that serves: the last one published or made to serve again; 0 is the base model."""
    last = select(V.number).where(V.serve_seq > NOT_SERVING).order_by(V.serve_seq.desc()).limit(1)
    return c.execute(last).scalar_one_or_none() or BASE_VERSION


def next_in_line(c: Connection) -> int:
    """The `serve_seq` of a version that serves from now on."""
    return c.execute(select(func.coalesce(func.max(V.serve_seq), NOT_SERVING))).scalar_one() + 1


def last_number(c: Connection) -> int:
    """The highest number that a version was ever given."""
    recorded = c.execute(select(func.coalesce(func.max(V.number), 0))).scalar_one()
    return max(recorded, int(meta(c, "last_version") or 0))
