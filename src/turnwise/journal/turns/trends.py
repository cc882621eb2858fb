"""The last judged turns as the alarms see them (alarms.py): scores and figures of answers, and no text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, exists, func, select

from turnwise.alarms import EARLIER, RECENT, HistoryTurn
from turnwise.journal import schema
from turnwise.journal.packing import unpack_ids, unpack_logprobs
from turnwise.journal.schema.rollouts import trajectories
from turnwise.types import TurnKind

T, D, J = schema.turns.c, schema.verdicts.c, trajectories.c
MOST = RECENT + EARLIER
READ = 2 * MOST
"""Verdicts that are read: the person's stand beside judges', and some are on turns that nothing is learned from."""
WALKED = 20_000
"""Verdicts that are walked through for those, back from the newest: beyond them all were on rollouts."""


def newest_verdict(c: Connection) -> int:
    """Its number: as long as it is the same, so is all that the alarms see."""
    return c.execute(select(func.max(D.id))).scalar_one() or 0


def last_judged(c: Connection) -> list[HistoryTurn]:
    """The last MOST judged turns of the person's sessions that no version was named for, oldest first."""
    spoken: dict[str, dict[bool, int]] = {}
    plays = exists().where(J.session_id == T.session_id)  # rollouts are judged by the thousand, and differ by nature
    last = select(D.turn_id, D.judge, D.score).join(schema.turns, T.id == D.turn_id).where(~plays)
    last = last.where(D.id > newest_verdict(c) - WALKED).order_by(D.id.desc())
    for row in c.execute(last.limit(READ)):
        spoken.setdefault(row.turn_id, {}).setdefault(row.judge == "person", row.score)  # the newest of either counts
    columns = (T.id, T.seq, T.temperature, T.response_tokens, T.response_ids, T.logprobs)
    wanted = select(*columns).where(T.id.in_(list(spoken)), T.kind == TurnKind.MAIN, ~T.pinned, T.response_tokens > 0)
    rows = c.execute(wanted.order_by(T.seq.desc()).limit(MOST)).all()[::-1]
    # Log-probs are those of the sampling temperature: others would seem to be of another policy.
    usual = Counter(row.temperature for row in rows).most_common(1)[0][0] if rows else None
    return [
        HistoryTurn(
            score=spoken[row.id].get(False),
            person=spoken[row.id].get(True),
            tokens=row.response_tokens,
            repetition=_repetition(unpack_ids(row.response_ids)) if row.response_ids else None,
            entropy=_surprise(row) if row.temperature == usual else None,
        )
        for row in rows
    ]


def _surprise(row: Any) -> float | None:
    said = unpack_logprobs(row.logprobs)
    return -sum(said) / len(said) if said else None


def _repetition(ids: Sequence[int]) -> float | None:
    """Share of the 4-grams that were there before; None without any."""
    grams = [tuple(ids[i : i + 4]) for i in range(len(ids) - 3)]
    return 1 - len(set(grams)) / len(grams) if grams else None
