"""Which wishes the weights carry: those whose turns a policy version, or one that it goes on from, had lessons of.

No clock is asked: a version counts whose number is higher than any that there was when the wish became a skill.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, select

from turnwise.journal import schema
from turnwise.journal.packing import unpack_json

P, S, V = schema.versions.c, schema.skill_sources.c, schema.skill_versions.c


def had_lessons(metrics: Mapping[str, Any]) -> bool:
    """Whether a policy version with these figures learned from lessons, and so what hints say."""
    return "lesson" in metrics


def taught(c: Connection, policy: int, skills: Sequence[int]) -> set[int]:
    """Of these texts of skills, those that a policy version was taught: a turn that they come of is among what it, or a
    version before it in its line, learned from, in lessons and since there is the text."""
    after = {row.id: row.after for row in c.execute(select(V.id, V.after).where(V.id.in_(skills)))}
    sources: dict[int, set[str]] = {skill: set() for skill in after}
    for row in c.execute(select(S.version, S.turn_id).where(S.version.in_(skills))):
        sources[row.version].add(row.turn_id)
    found: set[int] = set()
    for number, turns in _line_of(c, policy):
        found |= {skill for skill, of in sources.items() if number > (after[skill] or 0) and not of.isdisjoint(turns)}
    return found


def _line_of(c: Connection, policy: int) -> Iterator[tuple[int, list[str]]]:
    """A version and those that it goes on from, newest first: those with lessons, and the turns each learned from."""
    query = select(P.number, P.parent, P.metrics, P.turn_ids).where(P.number <= policy)
    known = {row.number: row for row in c.execute(query)}
    at: int | None = policy
    while at is not None and (row := known.pop(at, None)) is not None:
        if row.turn_ids and had_lessons(unpack_json(row.metrics)):
            yield row.number, unpack_json(row.turn_ids)
        at = row.parent
