"""Ids by their beginning: which session or turn a person means, and how much of an id tells it apart from all others.

Every look-up is a range of a primary key's index, or its nearest neighbours there; nothing is ever walked through.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, bindparam, func, select

from turnwise.errors import AmbiguousId, JournalError, UnknownTurn
from turnwise.journal import schema
from turnwise.patterns import anchored

S, T, P = schema.sessions.c, schema.turns.c, schema.provenance.c

ANSWERS = ("chatcmpl-", "resp_", "msg_")
"""What the wire formats put before a turn's id to name its answer."""
WHOLE = "/"
"""Behind an id says that it is all of it; no id has this character."""
SHOWN = 5
"""Candidates that a refusal names."""
FEWEST = 8
"""Characters of an id that are shown at least, beside the word before them."""
_OURS = anchored(r"(session|turn)-[0-9a-f]{32}\Z")
_LAST = "\U0010ffff"
"""Behind every character that an id may have."""


def find_session(c: Connection, given: str, gone: Collection[str] = ()) -> str:
    """The session with this id, or the only one that begins like it; of those that were pruned away, too.

    ``gone``: ids of sessions that are deleted and may be meant all the same. Raises JournalError where there is none,
    AmbiguousId where there are several.
    """
    found = _meant(c, "session", given, S.id, P.session_id, gone=gone)
    if found is None:
        raise JournalError(f"there is no session {given!r}; see `turnwise sessions list`")
    return found


def find_turn(c: Connection, given: str) -> str:
    """The same for a turn, which the id of its answer names, too. Raises UnknownTurn and AmbiguousId."""
    for answers in ANSWERS:
        given = given.removeprefix(answers)
    found = _meant(c, "turn", given, T.id)
    if found is None:
        raise UnknownTurn(f"there is no turn {given}; `turnwise sessions show` names those of a session")
    return found


def _meant(
    c: Connection, what: str, given: str, *columns: ColumnElement[str], gone: Collection[str] = ()
) -> str | None:
    """The id itself, wherever it is; else the only one that begins like it in the first place that has any.

    Ids that we make begin with a word (`turn-`), which may be left out. A client may call its session what another
    one's id begins with, and that short form may be what a person was shown: then it is asked which is meant.
    """
    exactly, given = given.endswith(WHOLE), given.removesuffix(WHOLE)
    if not given or not given.isascii():  # no id is like that; an empty one would be the beginning of any
        return None
    starts = (given, f"{what}-{given}")
    places = [sorted({one for start in starts for one in _begin_with(c, column, start)}) for column in columns]
    places[0] = sorted({*places[0], *(one for one in gone if one.startswith(starts))})
    for start in starts:
        if any(start in found for found in places):
            others = {one for found in places for one in found if one != start and _OURS.match(one)}
            if others and not exactly:
                raise AmbiguousId(
                    f"{given!r} is the id of a {what}, and {min(others)} begins with it; write {start + WHOLE!r} for "
                    "the first, and more of the other"
                )
            return start
    if exactly:
        return None
    found = next((found for found in places if found), [])
    if len(found) > 1:
        named = ", ".join(found[:SHOWN]) + (", …" if len(found) > SHOWN else "")
        raise AmbiguousId(f"several {what}s begin with {given!r}: {named}; give more of it")
    return found[0] if found else None


def _begin_with(c: Connection, column: ColumnElement[str], start: str) -> Sequence[str]:
    like = select(column).where(column >= start, column < start + _LAST).distinct().order_by(column)
    return c.execute(like.limit(SHOWN + 1)).scalars().all()


def _neighbours(column: ColumnElement[str]) -> Any:
    before = select(func.max(column)).where(column < bindparam("which")).scalar_subquery()
    after = select(func.min(column)).where(column > bindparam("which")).scalar_subquery()
    return select(before, after)


_NEIGHBOURS = {"session": _neighbours(S.id), "turn": _neighbours(T.id)}


def shortened(c: Connection, what: str, ids: Iterable[str]) -> dict[str, str]:
    """Of each id of a session or a turn as much as no other one begins with."""
    least = len(f"{what}-") + FEWEST
    return {whole: _shortest(whole, least, c.execute(_NEIGHBOURS[what], {"which": whole}).one()) for whole in ids}


def _shortest(whole: str, least: int, neighbours: Iterable[str | None]) -> str:
    length = least
    for other in neighbours:
        while other is not None and length < len(whole) and other.startswith(whole[:length]):
            length += 1
    return whole[:length]
