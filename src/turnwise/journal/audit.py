"""Everything that the journal holds of turns, batches and versions at one moment: for who checks the whole of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from sqlalchemy import select

from turnwise.journal import schema
from turnwise.journal.packing import unpack_json
from turnwise.journal.store import Store
from turnwise.messages import from_chat, history_from_chat
from turnwise.types import Message

T, B, V = schema.turns.c, schema.batches.c, schema.versions.c


@dataclass(frozen=True, slots=True)
class AuditedTurn:
    """Where a turn stands; ``messages`` are those that are stored with it. ``learned_before``: how many versions it was
    part of before a person's late score took it out of them."""

    id: str
    state: str
    exclusion: str | None
    version: int
    batch_id: int | None
    messages: list[Message]
    answer: Message | None
    learned_before: int = 0


@dataclass(frozen=True, slots=True)
class AuditedBatch:
    """Where a batch stands, and which turns it was made of."""

    id: int
    state: str
    turn_ids: list[str]


@dataclass(frozen=True, slots=True)
class AuditedVersion:
    """A published version and the batch it came of."""

    number: int
    batch_id: int | None


@dataclass(frozen=True, slots=True)
class Audit:
    """All of it. ``damage`` is what the database says is wrong with itself."""

    turns: dict[str, AuditedTurn]
    batches: list[AuditedBatch]
    versions: list[AuditedVersion]
    damage: list[str]


def audit(store: Store) -> Audit:
    """Read it in one snapshot."""
    columns = (T.id, T.state, T.exclusion, T.version, T.batch_id, T.messages, T.answer)
    with store.reading() as c:
        before = Counter(c.execute(select(schema.provenance.c.turn_id)).scalars())
        turns = {
            row.id: AuditedTurn(
                *row[:5],
                history_from_chat(unpack_json(row.messages)),
                from_chat(unpack_json(row.answer)) if row.answer else None,
                before[row.id],
            )
            for row in c.execute(select(*columns))
        }
        batches = [
            AuditedBatch(row.id, row.state, unpack_json(row.turn_ids))
            for row in c.execute(select(B.id, B.state, B.turn_ids).order_by(B.id))
        ]
        versions = [AuditedVersion(*row) for row in c.execute(select(V.number, V.batch_id).order_by(V.number))]
        return Audit(turns, batches, versions, store.database.damage(c, whole=True))
