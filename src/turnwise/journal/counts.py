"""The figures of `status` as they are kept: exact, and read without counting.

Triggers in the database move a row of `counts` with each turn, verdict and session that comes, goes or changes its
state, in the same transaction. No path of the program can forget them, and a rollback takes them back. The figures
in `TOLD` are of what happened and not of what is there: they are told with it, and no recount finds them.
"""

from __future__ import annotations

from sqlalchemy import Connection, delete, func, insert, select

from turnwise.journal import schema
from turnwise.journal.dialects.sql import upsert

N, T, V, S = schema.counts.c, schema.turns.c, schema.verdicts.c, schema.sessions.c

HINTS = "hints"
FORGETS = "forgets"
"""How often something was forgotten: a gateway that sees it change drops what it holds in memory."""

UNRECOGNISED = "unrecognised"
"""Main requests whose history has an answer, and which go on from no turn that was found."""
TOLD = (FORGETS, UNRECOGNISED)


def tell(c: Connection, name: str) -> None:
    """Count one more of a figure in `TOLD`."""
    upsert(c, schema.counts, {"name": name, "n": 1}, changes={"n": N.n + 1})


def told(c: Connection, name: str) -> int:
    """A figure in `TOLD`, or another one as it is kept."""
    return c.execute(select(N.n).where(N.name == name)).scalar_one_or_none() or 0


def read_counts(c: Connection) -> dict[tuple[str, ...], int]:
    """The kept figures, such as ("turns", "excluded", "no signal"): 3. None of them is 0."""
    rows = c.execute(select(N.name, N.n).where(N.n != 0, N.name.not_in(TOLD)))
    return {tuple(row.name.split("|")): row.n for row in rows}


def read_count(c: Connection, *name: str) -> int:
    """One kept figure, by its name as `read_counts` gives it."""
    return told(c, "|".join(name))


def recount(c: Connection) -> dict[tuple[str, ...], int]:
    """The same figures counted anew. Reads every turn: seconds for a large journal."""
    found: dict[tuple[str, ...], int] = {}
    for state, exclusion, n in c.execute(select(T.state, T.exclusion, func.count()).group_by(T.state, T.exclusion)):
        found["turns", state, exclusion or ""] = n
    for judge, score, n in c.execute(select(V.judge, V.score, func.count()).group_by(V.judge, V.score)):
        found["verdicts", judge, str(score)] = n
    is_open = S.closed_at.is_(None)
    for still_open, n in c.execute(select(is_open, func.count()).select_from(schema.sessions).group_by(is_open)):
        found["sessions", "open" if still_open else "closed"] = n
    if hints := c.execute(select(func.count()).select_from(schema.verdicts).where(V.hint.is_not(None))).scalar_one():
        found[HINTS,] = hints
    return found


def mend_counts(c: Connection) -> dict[str, tuple[int, int]]:
    """Put what is counted in place of what is kept. Gives each figure that was wrong as (kept, counted)."""
    kept, counted = read_counts(c), recount(c)
    wrong = differences(kept, counted)
    if wrong:
        c.execute(delete(schema.counts).where(N.name.not_in(TOLD)))
        c.execute(insert(schema.counts), [{"name": "|".join(name), "n": n} for name, n in counted.items()])
    return wrong


def differences(kept: dict[tuple[str, ...], int], counted: dict[tuple[str, ...], int]) -> dict[str, tuple[int, int]]:
    """The figures that differ, as (kept, counted)."""
    names = sorted(kept.keys() | counted.keys())
    return {"|".join(name): (kept.get(name, 0), counted.get(name, 0))
            for name in names if kept.get(name, 0) != counted.get(name, 0)}  # fmt: skip
