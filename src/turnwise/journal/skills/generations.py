"""Generations of the skills: which turns were made before the last one, and so are never trained on after it.

A turn that could have had no skill is of generation 0 (MetaClaw, Algorithm 1: samples of generation g and below leave
the queue when g + 1 begins).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, func, or_, select, update

from turnwise.journal import schema
from turnwise.journal.store import Store
from turnwise.types import Exclusion, TurnState

T, B = schema.turns.c, schema.batches.c
UNTRAINED = (TurnState.WAITING, TurnState.JUDGING, TurnState.JUDGED, TurnState.READY)
AT_ONCE = 500
_GENERATION = select(func.coalesce(func.max(schema.libraries.c.generation), 0))


def generation(c: Connection) -> int:
    """The generation in force: no rollback lowers it."""
    return c.execute(_GENERATION).scalar_one()


def why_left_out(c: Connection, store: Store, turn_id: str) -> Exclusion | None:
    """Why a turn may be no sample: a skill was made of its failure, or it is of an earlier generation; None: it may."""
    sources = schema.skill_sources.c
    made = select(sources.turn_id).where(sources.turn_id == turn_id, sources.support).limit(1)
    now = generation(c)
    if not now:
        return None
    if c.execute(made).first() is not None:
        return Exclusion.SUPPORT_DATA
    of = c.execute(select(func.coalesce(T.generation, 0)).where(T.id == turn_id)).scalar_one()
    behind = of < now and not store.config.skills.keep_older_generations
    return Exclusion.EARLIER_GENERATION if behind else None


def batches_with(c: Connection, store: Store, support: Sequence[str], last: int) -> Iterable[int]:
    """The open batches with a turn of a skill's making, or of generation `last` and below."""
    which = _left_out(store, support, last)
    leased = select(T.batch_id).join(schema.batches, B.id == T.batch_id)
    return c.execute(leased.where(B.state == "open", T.state == TurnState.LEASED, which).distinct()).scalars().all()


def leave_out(c: Connection, store: Store, support: Sequence[str], last: int) -> int:
    """Take support data out of all states before training, and ready samples of generation `last` and below off the
    queue. Gives how many ready samples that cost."""
    made = set(support)
    rows = c.execute(
        select(T.id, T.state, T.exclusion).where(
            or_(T.id.in_(support), T.state == TurnState.READY), T.state.in_(UNTRAINED), _left_out(store, support, last)
        )
    ).all()
    for state in UNTRAINED:
        for exclusion, wanted in ((Exclusion.SUPPORT_DATA, True), (Exclusion.EARLIER_GENERATION, False)):
            these = [row for row in rows if row.state == state and (row.id in made) == wanted]
            for start in range(0, len(these), AT_ONCE):
                store.move_all(c, these[start : start + AT_ONCE], TurnState.EXCLUDED, exclusion)
    relabelled = update(schema.turns).where(
        T.id.in_(support), T.state == TurnState.EXCLUDED, T.exclusion == Exclusion.EARLIER_GENERATION
    )  # a failure that waited while another began a generation
    c.execute(relabelled.values(exclusion=Exclusion.SUPPORT_DATA))
    return sum(row.state == TurnState.READY for row in rows)


def _left_out(store: Store, support: Sequence[str], last: int) -> Any:
    made = T.id.in_(support)
    return made if store.config.skills.keep_older_generations else or_(made, func.coalesce(T.generation, 0) <= last)
