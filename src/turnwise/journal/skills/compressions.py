"""System prompts that are made shorter, by the hash of what they say: wanted by the gateway, settled by their maker."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Connection, delete, func, insert, select, update

from turnwise.journal import schema
from turnwise.journal.packing import pack_json, unpack_json
from turnwise.journal.store import Store

C, T = schema.compressions.c, schema.turns.c

MOST_KNOWN = 200
"""System prompts that are known at once; of more, none is made shorter until some are forgotten."""

CompressionState = Literal["wanted", "ready", "refused"]


@dataclass(frozen=True, slots=True)
class Compression:
    """One system prompt. ``shorter``: what stands in for it once it is "ready"; ``why`` it was "refused".

    ``tools``: the names of those that the request had. ``turns``: in how many recorded turns the shorter one stood.
    """

    id: int
    digest: str
    state: CompressionState
    original: str
    tools: tuple[str, ...]
    shorter: str | None
    why: str | None
    made_by: str | None
    turns: int = 0


class Compressions:
    """The gateway's side, and that of whoever makes prompts shorter."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def find(self, digest: str) -> Compression | None:
        """What is known of a system prompt; None where it was never wanted shorter."""
        with self._store.reading() as c:
            row = c.execute(select(schema.compressions).where(C.digest == digest)).one_or_none()
            return None if row is None else _read(row)

    def want_soon(self, digest: str, original: str, tools: Sequence[str], session_id: str) -> Future[None]:
        """Ask for a shorter one, with the next group of writes. Raises JournalError; so may the future."""
        packed = pack_json({"text": original, "tools": list(tools)})
        values = {"digest": digest, "session_id": session_id, "original": packed, "state": "wanted"}

        def write(c: Connection) -> None:
            known = c.execute(select(func.count()).select_from(schema.compressions)).scalar_one()
            there = c.execute(select(C.id).where(C.digest == digest)).first()
            if known < MOST_KNOWN and there is None:
                c.execute(insert(schema.compressions).values(values | {"created_at": self._store.clock()}))

        return self._store.writes.submit(write)

    def wanted(self) -> list[Compression]:
        """Those that wait to be made, oldest first."""
        with self._store.reading() as c:
            rows = c.execute(select(schema.compressions).where(C.state == "wanted").order_by(C.id)).all()
            return [_read(row) for row in rows]

    def settle(self, one: Compression, shorter: str | None, why: str | None, made_by: str) -> None:
        """What came of it: a shorter prompt, or why there is none. One that was forgotten meanwhile stays forgotten."""
        values = {
            "state": "refused" if shorter is None else "ready",
            "shorter": None if shorter is None else pack_json(shorter),
            "why": why,
            "made_by": made_by,
        }
        with self._store.transaction() as c:
            c.execute(update(schema.compressions).where(C.id == one.id, C.state == "wanted").values(values))

    def all(self) -> list[Compression]:
        """All that are known, newest first, with the turns that each stood in."""
        with self._store.reading() as c:
            counted = select(T.compression, func.count()).where(T.compression.is_not(None)).group_by(T.compression)
            turns = {row[0]: row[1] for row in c.execute(counted)}
            rows = c.execute(select(schema.compressions).order_by(C.id.desc())).all()
            return [_read(row, turns.get(row.id, 0)) for row in rows]

    def start_over(self) -> int:
        """Have those that were refused made once more; gives how many."""
        with self._store.transaction() as c:
            again = update(schema.compressions).where(C.state == "refused").values(state="wanted", why=None)
            return c.execute(again).rowcount


def told_of(one: Compression) -> dict[str, Any]:
    """What a person is shown of one: its sizes in bytes, and no word of it."""
    return {
        "prompt": one.digest[:8],
        "state": one.state,
        "bytes": len(one.original.encode()),
        "shorter": None if one.shorter is None else len(one.shorter.encode()),
        "turns": one.turns,
        "made_by": one.made_by,
        "why": one.why,
    }


def forget_compressions(c: Connection, sessions: Sequence[str]) -> None:
    """Delete the system prompts that came with these sessions."""
    c.execute(delete(schema.compressions).where(C.session_id.in_(sessions)))


def _read(row: Any, turns: int = 0) -> Compression:
    given = unpack_json(row.original)
    shorter = None if row.shorter is None else unpack_json(row.shorter)
    return Compression(
        row.id, row.digest, row.state, given["text"], tuple(given["tools"]), shorter, row.why, row.made_by, turns
    )
