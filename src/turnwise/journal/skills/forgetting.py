"""Forgetting a session takes the skills that were made from it: every text from the first one on that its words are in.

The library goes on without them, and so does every earlier one that a rollback may bring back.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, delete, func, insert, select, update

from turnwise.journal import schema
from turnwise.journal.packing import pack_json, unpack_json
from turnwise.journal.skills.compressions import forget_compressions
from turnwise.journal.store import Store

L, V = schema.libraries.c, schema.skill_versions.c
W, U = schema.skill_sources.c, schema.skill_uses.c


def made_from(c: Connection, sessions: Sequence[str]) -> dict[str, int]:
    """The skills that were made from sessions: by name, how many turns of other sessions have one in their prompts."""
    found = dict.fromkeys(sorted({name for name, _ in texts_made_from(c, sessions)}), 0)
    for name in found:
        these = [version for of, version in texts_made_from(c, sessions) if of == name]
        others = select(func.count(U.turn_id.distinct())).join(schema.turns, schema.turns.c.id == U.turn_id)
        found[name] = c.execute(
            others.where(U.version.in_(these), ~U.withheld, schema.turns.c.session_id.not_in(sessions))
        ).scalar_one()
    return found


def erase(c: Connection, store: Store, sessions: Sequence[str]) -> None:
    """Delete those skills' texts, and take them out of every library; and shorter system prompts that came with the
    sessions."""
    forget_compressions(c, sessions)
    texts = texts_made_from(c, sessions)
    if not texts:
        return
    names, ids = {name for name, _ in texts}, {version for _, version in texts}
    for table, column in (
        (schema.skill_sources, W.version),
        (schema.skill_uses, U.version),
        (schema.replays, schema.replays.c.version),
        (schema.skill_versions, V.id),
    ):
        c.execute(delete(table).where(column.in_(ids)))
    names -= set(c.execute(select(V.name).where(V.name.in_(names))).scalars())  # those with an earlier text stay known
    rows = c.execute(select(schema.libraries).order_by(L.number)).all()
    for row in rows:
        entries = unpack_json(row.entries)
        kept = {name: entry for name, entry in entries.items() if entry[0] not in ids}
        what = "a change of skills that are forgotten" if any(name in row.what for name in names) else row.what
        if kept != entries or what != row.what:
            c.execute(update(schema.libraries).where(L.number == row.number).values(entries=pack_json(kept), what=what))
    if rows:
        last = rows[-1]
        kept = {name: entry for name, entry in unpack_json(last.entries).items() if entry[0] not in ids}
        values = {"number": last.number + 1, "generation": last.generation, "what": "forget a session", "cost": 0}
        c.execute(insert(schema.libraries).values(values | {"created_at": store.clock(), "entries": pack_json(kept)}))


def texts_made_from(c: Connection, sessions: Sequence[str]) -> list[tuple[str, int]]:
    """The name and the version of each text from the first one of its name on that came of these sessions."""
    first = (
        select(V.name, func.min(V.number).label("number"))
        .join(schema.skill_sources, W.version == V.id)
        .where(W.session_id.in_(sessions))
        .group_by(V.name)
        .subquery()
    )
    later = select(V.name, V.id).join(first, first.c.name == V.name).where(V.number >= first.c.number)
    return [(row.name, row.id) for row in c.execute(later.order_by(V.name, V.number))]
