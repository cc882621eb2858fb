"""Late scores: which versions learned from a turn that is on its way into another one, and with which reward.

A turn is in one batch at a time. When it leaves the version that it is part of, because the person says otherwise of it
now, that version is noted (`provenance`), for forgetting and for whoever asks what the next one adds.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, delete, insert, select

from turnwise.journal import schema

T, V, P = schema.turns.c, schema.versions.c, schema.provenance.c


def same_sign(one: float | None, other: float | None) -> bool:
    """Whether two rewards speak the same way; none at all is as 0."""
    return _sign(one) == _sign(other)


def differs(c: Connection, turn_id: str, reward: float) -> bool:
    """Whether this reward, which is not 0, speaks against the one that the turn was trained with."""
    trained_with = select(schema.samples.c.reward).where(schema.samples.c.turn_id == turn_id)
    return bool(reward) and not same_sign(reward, c.execute(trained_with).scalar_one_or_none())


def leave_version(c: Connection, turn_id: str) -> bool:
    """Note which version a trained turn is part of, before it is offered again; False where that is not known."""
    reward = select(schema.samples.c.reward).where(schema.samples.c.turn_id == turn_id).scalar_subquery()
    part_of = select(T.id, T.session_id, V.number, reward).join(schema.versions, V.batch_id == T.batch_id)
    noted = ["turn_id", "session_id", "version", "reward"]
    return bool(c.execute(insert(schema.provenance).from_select(noted, part_of.where(T.id == turn_id))).rowcount)


def last_learned(c: Connection, turn_id: str) -> Any:
    """The newest version that was noted of a turn that is in the journal still: `version`, `reward` and `batch_id`."""
    noted = select(P.version, P.reward, V.batch_id).join(schema.versions, V.number == P.version)
    return c.execute(noted.where(P.turn_id == turn_id).order_by(P.version.desc()).limit(1)).first()


def return_to(c: Connection, turn_id: str, learned: Any) -> None:
    """The turn is part of that version again, and of none to come."""
    c.execute(delete(schema.provenance).where(P.turn_id == turn_id, P.version == learned.version))


def _sign(reward: float | None) -> int:
    return ((reward or 0) > 0) - ((reward or 0) < 0)
