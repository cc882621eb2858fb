"""Durable turns of `turnwise bench journal`: how fast the journal takes them, where the time goes, and SQLite alone."""

from __future__ import annotations

import sqlite3
import time
import uuid
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, event

from turnwise.bench.journal.fill import CLIENT, hash_of
from turnwise.journal import Answer, Journal, NewTurn
from turnwise.journal.dialects.sqlite import PRAGMAS
from turnwise.messages import answer_of, saying
from turnwise.types import FinishReason, Message, TurnKind

AT_ONCE = 64
"""Turns under way together."""
WRITE_S = 5.0


@dataclass
class Spent:
    """Of the writing thread's work, in seconds: all of it, SQLite's statements, SQLite's commits."""

    statements: int = 0
    in_statements: float = 0.0
    in_commits: float = 0.0
    commits: int = 0
    in_groups: float = 0.0


@contextmanager
def accounted(journal: Journal) -> Iterator[Spent]:
    """Count what the journal's writes spend meanwhile. Costs some of the speed itself."""
    spent = Spent()
    began = 0.0

    def before(*_: Any) -> None:
        nonlocal began
        began = time.perf_counter()

    def after(*_: Any) -> None:
        spent.statements += 1
        spent.in_statements += time.perf_counter() - began

    group = journal.store.writes._transaction

    @contextmanager
    def counted() -> Iterator[Connection]:
        started = time.perf_counter()
        with group() as c:
            yield c
            ending = time.perf_counter()
        spent.commits += 1
        spent.in_commits += time.perf_counter() - ending
        spent.in_groups += time.perf_counter() - started

    journal.store.writes._transaction = counted
    event.listen(journal.store.engine, "before_cursor_execute", before)
    event.listen(journal.store.engine, "after_cursor_execute", after)
    try:
        yield spent
    finally:
        event.remove(journal.store.engine, "before_cursor_execute", before)
        event.remove(journal.store.engine, "after_cursor_execute", after)
        journal.store.writes._transaction = group


def write_turns(journal: Journal) -> int:
    """Turns that were asked for and answered, both durably, within WRITE_S."""
    question = [saying("user", "What should I have for dinner tomorrow? " * 8)]
    answer = answer_of("Something that is quick to make and that you like. " * 8)
    under_way: deque[tuple[str, Future[None]]] = deque()
    done, n = 0, 0
    deadline = time.perf_counter() + WRITE_S
    finishing: deque[Future[None]] = deque()
    while time.perf_counter() < deadline:
        while len(under_way) + len(finishing) < AT_ONCE:
            n += 1
            new = _new_turn(n, question)
            under_way.append((new.id, journal.turns.begin_soon(new)))
        turn_id, begun = under_way.popleft()
        begun.result()
        hashes = [hash_of(kind, -n) for kind in ("context", "thread", "answer")]
        said = Answer(answer, hashes[0], FinishReason.STOP, list(range(120)), [-0.5] * 120, hashes[1], hashes[2])
        finishing.append(journal.turns.finish_soon(turn_id, said))
        while finishing and (finishing[0].done() or len(finishing) >= AT_ONCE // 2):
            finishing.popleft().result()
            done += 1
    for future in (*(begun for _, begun in under_way), *finishing):
        future.result()  # not counted, but not left under way either
    return done


def _new_turn(n: int, question: list[Message]) -> NewTurn:
    return NewTurn(
        id=f"turn-{uuid.uuid4().hex}",
        session_id=f"session-new-{n // 10}",
        client=CLIENT,
        source="header",
        kind=TurnKind.MAIN,
        parent_id=None,
        branch_of=None,
        extends_parent=False,
        bridged=False,
        version=0,
        pinned=False,
        model="turnwise",
        request_hash=hash_of("request", -n),
        retry_key=None,
        temperature=0.7,
        hint_at=2,
        messages=question,
        tools=None,
        params={},
        prompt_ids=list(range(80)),
        prompt_tokens=80,
        next_state=[],
        answers=None,
    )


def plain_inserts(path: Path, size: int, rows_a_group: int) -> float:
    """Rows of `size` bytes a second that SQLite takes, `rows_a_group` to a transaction, with the journal's settings."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for pragma in PRAGMAS:
            db.execute(f"PRAGMA {pragma}")
        db.execute("CREATE TABLE rows (id TEXT PRIMARY KEY, data BLOB)")
        data, done = b"x" * size, 0
        started = time.perf_counter()
        while time.perf_counter() - started < WRITE_S:
            db.execute("BEGIN IMMEDIATE")
            db.executemany("INSERT INTO rows VALUES (?, ?)", [(uuid.uuid4().hex, data) for _ in range(rows_a_group)])
            db.execute("COMMIT")
            done += rows_a_group
        return done / (time.perf_counter() - started)
