"""What a trainer is given of a turn: its ids, reward, hint and question, as a sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, and_, or_, select

from turnwise.journal import schema
from turnwise.journal.packing import unpack_ids, unpack_logprobs, unpack_spans
from turnwise.journal.pictures import pictures_of
from turnwise.journal.rollouts.claiming import groups_of
from turnwise.journal.turns.reading import last_question, read_prompt_ids
from turnwise.types import PERSONAL, Sample

T = schema.turns.c


def samples_of(c: Connection, turn_ids: Sequence[str]) -> list[Sample]:
    """The samples of these turns, in their order; those that are gone are left out."""
    found = {}
    rows = c.execute(
        select(schema.turns, schema.samples.c.reward, schema.samples.c.hint)
        .outerjoin(schema.samples, schema.samples.c.turn_id == T.id)
        .where(T.id.in_(list(turn_ids)))
    ).all()
    prompts = read_prompt_ids(c, rows)
    replies = _replies(c, rows)
    pictures = pictures_of(c, [row.id for row in rows])
    steps = {turn_id: (stream, group) for turn_id, stream, group in groups_of(c, rows)}
    for row in rows:
        stream, group = steps.get(row.id, (PERSONAL, None))
        found[row.id] = Sample(
            turn_id=row.id,
            session_id=row.session_id,
            prompt_ids=prompts[row.id],
            response_ids=unpack_ids(row.response_ids),
            logprobs=unpack_logprobs(row.logprobs),
            temperature=row.temperature,
            version=row.version,
            reward=row.reward or 0.0,
            hint=row.hint,
            hint_at=row.hint_at,
            question=None if row.id in replies else last_question(row),
            placed=unpack_spans(row.placed),
            stream=stream,
            group=group,
            step=row.step,
            pictures=pictures.get(row.id, ()),
        )
    return [found[turn_id] for turn_id in turn_ids if turn_id in found]


def _replies(c: Connection, rows: Sequence[Row[Any]]) -> set[str]:
    """The turns to which the user's words are a judgement on the answer before, as a verdict says, and no question."""
    v = schema.verdicts.c
    parents = {row.parent_id for row in rows if row.parent_id is not None}
    spoken = or_(v.score != 0, v.hint.is_not(None))
    judged = set(c.execute(select(v.turn_id).where(and_(v.turn_id.in_(parents), spoken))).scalars())
    return {row.id for row in rows if row.parent_id in judged}
