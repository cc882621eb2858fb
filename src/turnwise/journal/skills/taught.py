"""Which wishes the weights carry: those that a policy version keeps without being told, as its trainer saw.

A version that had lessons notes of each wish that stood then in which share of its answers it is kept. The newest such
note in the line of versions counts: what was learned once may be worn out. No clock is asked: a version counts whose
number is higher than any that there was when the wish became a skill, or was said again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, select

from turnwise.journal import schema
from turnwise.journal.packing import unpack_json

P, S, V = schema.versions.c, schema.skill_sources.c, schema.skill_versions.c

KEPT = 0.5
"""Share of answers that must keep a wish for it to be told no more. One that is told as well harms (0014)."""


def had_lessons(metrics: Mapping[str, Any]) -> bool:
    """Whether a policy version with these figures learned from lessons, and so what hints say."""
    return "lesson" in metrics


def taught(c: Connection, policy: int, skills: Sequence[int]) -> set[int]:
    """Of these texts of skills, those that a policy version keeps untold: so says the last note on a turn that they
    come of, its own or that of a version before it in its line, since there is the text."""
    after = {row.id: row.after for row in c.execute(select(V.id, V.after).where(V.id.in_(skills)))}
    sources: dict[int, set[str]] = {skill: set() for skill in after}
    for row in c.execute(select(S.version, S.turn_id).where(S.version.in_(skills))):
        sources[row.version].add(row.turn_id)
    kept: dict[int, bool] = {}
    for number, wishes in _line_of(c, policy):
        for skill, of in sources.items():
            shares = [wish["kept"] for wish in wishes if not of.isdisjoint(wish["turns"])]
            if shares and skill not in kept:
                kept[skill] = number > (after[skill] or 0) and max(shares) >= KEPT
    return {skill for skill, is_kept in kept.items() if is_kept}


def _line_of(c: Connection, policy: int) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """A version and those that it goes on from, newest first: those with lessons, and what each noted of wishes."""
    query = select(P.number, P.parent, P.gate).where(P.number <= policy)
    known = {row.number: row for row in c.execute(query)}
    at: int | None = policy
    while at is not None and (row := known.pop(at, None)) is not None:
        if wishes := unpack_json(row.gate).get("wishes"):
            yield row.number, wishes
        at = row.parent
