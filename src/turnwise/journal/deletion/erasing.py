"""Taking turns out of the journal for good, so that what is left can still be read.

A turn may be stored as what it adds to its parent. Where a parent goes and its child stays, the child is first stored
whole. Nothing here decides what goes: `retention` and `forgetting` do.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from filelock import FileLock, Timeout
from sqlalchemy import Connection, delete, select, update

from turnwise.errors import JournalError
from turnwise.journal import schema
from turnwise.journal.blobs import sweep_blobs
from turnwise.journal.clocks import last_turn, lower_boot_turn, set_meta
from turnwise.journal.dialects.sql import defer_foreign_keys, insert_missing_from
from turnwise.journal.journal import Journal
from turnwise.journal.packing import pack_ids, pack_json
from turnwise.journal.store import Store
from turnwise.journal.turns.reading import read_context

T, S, B, P = schema.turns.c, schema.sessions.c, schema.batches.c, schema.provenance.c

FAR = 2**62
"""Behind any turn."""


def erase_turns(store: Store, c: Connection, ids: Sequence[str]) -> None:
    """Delete these turns and all that belongs to them but their events. Their number should be some hundreds at most.

    Every table with a `turn_id` is cleared of them, so that none that is added later is left out.
    """
    defer_foreign_keys(c)  # turns go before their verdicts, which would touch them again
    gone = T.id.in_(ids)
    for child in c.execute(
        select(schema.turns).where(T.parent_id.in_(ids), T.extends_parent.is_(True), T.id.not_in(ids))
    ).all():
        messages, prompt_ids = read_context(c, child)
        whole = {"messages": pack_json(messages), "prompt_ids": pack_ids(prompt_ids), "extends_parent": False}
        c.execute(update(schema.turns).where(T.id == child.id).values(whole))
    tools = c.execute(select(T.tools_id).where(gone, T.tools_id.is_not(None)).distinct()).scalars().all()
    c.execute(delete(schema.turns).where(gone))
    for table in schema.metadata.tables.values():
        if "turn_id" in table.c and table not in (schema.events, schema.provenance, schema.skill_sources):
            c.execute(delete(table).where(table.c.turn_id.in_(ids)))
    sweep_blobs(c, tools)
    lower_boot_turn(c)
    store.read_boot_turn(c)


def keep_provenance(c: Connection, ids: Sequence[str]) -> None:
    """Note from which session those of these turns came that a version learned from."""
    learned = (
        select(T.id, T.session_id, B.version)
        .join(schema.batches, B.id == T.batch_id)
        .where(T.id.in_(ids), schema.TRAINED, B.version.is_not(None))
    )
    insert_missing_from(c, schema.provenance, ["turn_id", "session_id", "version"], learned)


def is_served(home: Path) -> bool:
    """Whether a gateway runs in this home."""
    lock = FileLock(home / "gateway.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return True
    lock.release()
    return False


def vacuum(journal: Journal) -> tuple[int, int]:
    """Write the journal anew without what is free in it; gives its bytes before and after.

    All writers wait meanwhile, so it is refused while a gateway runs, and none can start until it is done. Raises
    JournalError.
    """
    store = journal.store
    lock = FileLock(store.config.home / "gateway.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise JournalError("the journal is in use and would hold up requests; stop `turnwise serve` first") from None
    try:
        if store.has_gateway():
            raise JournalError("the journal is in use by a gateway of another home; stop that one first")
        before = store.file_bytes()
        # Rows may get other numbers, in the same order. No gateway runs, so no turn of before is one that is tried
        # again; if this is cut off between the two, whoever opens the journal next sets it right.
        _set_boot_turn(store, FAR)
        try:
            store.rewrite()
        finally:
            _set_boot_turn(store, None)
        return before, store.file_bytes()
    finally:
        lock.release()


def _set_boot_turn(store: Store, number: int | None) -> None:
    with store.transaction() as c:
        store.boot_turn = last_turn(c) if number is None else number
        set_meta(c, "boot_turn", store.boot_turn)
