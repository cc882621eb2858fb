"""Which ready samples make a batch, and which are too old for one.

Age is counted along lineage (`sampling.fresh_versions`), so that a rollback makes the samples of what was left stale
and keeps those of what serves again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, Select, and_, bindparam, func, literal, not_, or_, select

from turnwise.config import TrainConfig
from turnwise.journal import schema
from turnwise.methods import METHODS
from turnwise.sampling import fresh_versions, places_beside, spans
from turnwise.types import BASE_VERSION

T, S, V = schema.turns.c, schema.samples.c, schema.versions.c
_LAST = 2**31 - 1
"""Higher than any version's number."""
_OF_PERSON = T.step.is_(None)
"""Not a step of a rollout: these are claimed in whole groups (`journal.rollouts`)."""
_NEXT_READY = select(func.min(T.version)).where(schema.READY, _OF_PERSON, T.version >= bindparam("least"))
_OF_SPAN = T.version.between(bindparam("low"), bindparam("high"))
_STALE = select(T.id, T.state, T.exclusion).where(schema.READY, _OF_PERSON, _OF_SPAN).limit(bindparam("most"))

Kind = Literal["new", "refused", "silent"]
"""Teaches something, was refused by the gate under this configuration, or carries the KL term alone."""
Span = tuple[int, int]
"""The first and the last of the versions between which each is fresh, or each is stale."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Ready turns (`id`, `state`, `exclusion`, `seq`), each list in the order of the turns.

    ``stale`` ones; those that teach something, at most a batch of them: ``teaching``, and ``refused`` by the gate under
    this configuration; and ``silent`` ones, which carry the KL term alone.
    """

    stale: list[Any]
    teaching: list[Any]
    refused: list[Any]
    silent: list[Any]


def choose(c: Connection, serving: int, train: TrainConfig, configuration: str, most: int) -> Choice:
    """Up to `most` stale turns, and those for a batch; of silent ones up to a batch and `most`."""
    found = Choice([], [], [], [])
    learns = _learns(train)
    for (low, high), is_fresh in _ready_spans(c, _fresh_spans(c, serving, train.max_staleness)):
        span = {"low": low, "high": high}
        if not is_fresh:
            if len(found.stale) < most:
                found.stale.extend(c.execute(_STALE, span | {"most": most - len(found.stale)}))
            continue
        of = span | {"most": train.max_batch, "configuration": configuration}
        found.teaching.extend(c.execute(_ready(*learns, "new"), of))
        found.refused.extend(c.execute(_ready(*learns, "refused"), of))
        found.silent.extend(c.execute(_ready(*learns, "silent"), span | {"most": train.max_batch + most}))
    return Choice(
        found.stale,
        _in_order(found.teaching)[: train.max_batch],
        _in_order(found.refused)[: train.max_batch],
        _in_order(found.silent)[: train.max_batch + most],
    )


def _in_order(rows: Sequence[Any]) -> list[Any]:
    return sorted(rows, key=lambda row: row.seq)


def with_silent(teaching: Sequence[Any], silent: Sequence[Any], max_batch: int) -> list[Any]:
    """The turns of a batch in their order: those that teach something, and as many others as may go with them."""
    room = places_beside(len(teaching), max_batch)
    return sorted([*teaching, *silent[:room]], key=lambda row: row.seq)


def share_places(new: Sequence[Any], refused: Sequence[Any], max_batch: int) -> list[Any]:
    """Of a batch's places, half for what was refused, the oldest first, as far as there is as much that is new.

    Were only what is left over theirs, samples that were refused would never be tried again where new ones fill each
    batch. Something new is in every batch, so none is ever made twice.
    """
    again = refused[: min(max_batch // 2, len(new))]
    return [*new[: max_batch - len(again)], *again]


def count_teaching(c: Connection, serving: int, train: TrainConfig, configuration: str) -> int:
    """How many ready samples are fresh, teach something and were not refused: `min_batch` of them begin a batch."""
    count = _count(*_learns(train))
    return sum(
        c.execute(count, {"low": low, "high": high, "configuration": configuration}).scalar_one()
        for low, high in _fresh_spans(c, serving, train.max_staleness)
    )


def is_fresh(c: Connection, version: int, serving: int, max_staleness: int) -> bool:
    """Whether a sample of this version is not stale."""
    return any(low <= version <= high for low, high in _fresh_spans(c, serving, max_staleness))


def _learns(train: TrainConfig) -> tuple[bool, bool]:
    """Whether scores, and whether hints, move the weights."""
    method = METHODS[train.method]
    return method.scores and train.w_binary > 0, method.hints and train.w_opd > 0


@cache
def _ready(scores: bool, hints: bool, kind: Kind) -> Select[Any, Any, Any, Any]:
    """The first ready turns of a kind of a span of versions."""
    wanted = select(T.id, T.state, T.exclusion, T.seq).join_from(schema.turns, schema.samples, S.turn_id == T.id)
    return (
        wanted.where(_that(scores, hints, kind))
        .order_by(T.seq + 0)  # what is computed keeps SQLite from walking all turns in their order
        .limit(bindparam("most"))
    )


@cache
def _count(scores: bool, hints: bool) -> Select[Any]:
    return (
        select(func.count())
        .join_from(schema.turns, schema.samples, S.turn_id == T.id)
        .where(_that(scores, hints, "new"))
    )


def _that(scores: bool, hints: bool, kind: Kind) -> ColumnElement[bool]:
    signals = [*([S.reward != 0] if scores else []), *([S.hint.is_not(None)] if hints else [])]
    some = or_(*signals)
    if kind == "silent":
        return and_(schema.READY, _OF_PERSON, _OF_SPAN, not_(some))
    refused = S.refused_as == bindparam("configuration")
    return and_(
        schema.READY,
        _OF_PERSON,
        _OF_SPAN,
        some,
        refused if kind == "refused" else or_(S.refused_as.is_(None), not_(refused)),
    )


def _fresh_spans(c: Connection, serving: int, max_staleness: int) -> list[Span]:
    """Between which versions samples are fresh. Reads what descends from the oldest parent that is near enough.

    In a history without rollbacks these are the last `max_staleness` versions, however many there were.
    """
    line = select(V.number, V.parent, literal(0).label("step")).where(V.number == serving).cte(recursive=True)
    further = select(V.number, V.parent, line.c.step + 1).join(line, V.number == line.c.parent)
    line = line.union_all(further.where(line.c.step < max_staleness))
    parents = c.execute(select(line.c.number)).scalars().all()
    oldest = min(parents) if len(parents) > max_staleness else BASE_VERSION
    known = select(V.number, V.parent).where(V.number >= oldest).order_by(V.number)
    near = {row.number: row.parent for row in c.execute(known)}
    return spans(
        [*([BASE_VERSION] if oldest == BASE_VERSION else []), *near], fresh_versions(near, serving, max_staleness)
    )


def _ready_spans(c: Connection, fresh: Sequence[Span]) -> Iterator[tuple[Span, bool]]:
    """The spans, fresh or not, that ready turns are of, from the oldest version on."""
    least = 0
    while (version := c.execute(_NEXT_READY, {"least": least}).scalar_one()) is not None:
        span = next((span for span in fresh if span[0] <= version <= span[1]), None)
        if span is None:
            after = min((low for low, _ in fresh if low > version), default=_LAST)
            yield (version, after - 1), False
            least = after
        else:
            yield span, True
            least = span[1] + 1
