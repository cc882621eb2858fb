"""A large journal in a short time: rows as the program writes them, put straight into SQLite, for `bench journal`.

Sessions of ten turns, each stored as what it adds to the one before; batches of 32; verdicts, samples and versions. The
indexes and triggers are taken away while it is filled and made again as they were.
"""

from __future__ import annotations

import hashlib
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from turnwise.config import Config
from turnwise.journal import Journal, schema
from turnwise.journal.blobs import Content
from turnwise.journal.counts import mend_counts
from turnwise.journal.packing import pack_ids, pack_json, pack_logprobs
from turnwise.types import Exclusion, TurnKind, TurnState

SESSION = 10
BATCH = 32
VARIETY = 256
"""Different texts, each used many times: making a million of them would take longer than storing them."""
POPULAR = 100
"""Every so many answers are word for word the same."""
CLIENT = hashlib.sha256(b"client").hexdigest()
LONG_SESSION = "session-long"
LONG_TURNS = 20_000
BEGAN = 1_700_000_000.0
EVERY_S = 20.0


@dataclass(frozen=True)
class Size:
    """How much is recorded: turns, versions, and turns that wait for the judge or the trainer."""

    turns: int
    versions: int
    backlog: int

    def part(self, share: float) -> Size:
        return Size(*(max(64, int(n * share)) for n in (self.turns, self.versions, self.backlog)))


def fill(config: Config, size: Size, seed: int = 0) -> None:
    """Fill a new home's journal."""
    Journal.open(config).close()
    with closing(sqlite3.connect(config.journal_path, isolation_level=None)) as db:
        db.execute("PRAGMA synchronous = OFF")
        db.execute("PRAGMA cache_size = -200000")
        made = db.execute(
            "SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL AND type IN ('index', 'trigger')"
        ).fetchall()
        for kind, name, _ in made:
            db.execute(f"DROP {kind} {name}")
        db.execute("BEGIN")
        writer = _Writer(db, random.Random(seed), size)
        writer.sessions()
        _insert(db, "turns", writer.turns())
        writer.versions()
        db.execute("COMMIT")
        for kind in ("index", "trigger"):
            for _, _, sql in (one for one in made if one[0] == kind):
                db.execute(sql)
        db.execute(
            "UPDATE turns SET good_verdict = (SELECT v.id FROM verdicts v WHERE v.turn_id = turns.id AND score = 1)"
            " WHERE id IN (SELECT turn_id FROM verdicts WHERE score = 1)"
        )
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    journal = Journal.open(config)
    with journal.store.transaction() as c:
        mend_counts(c)
    journal.close()


def turn_name(n: int) -> str:
    return "turn-" + hashlib.md5(str(n).encode(), usedforsecurity=False).hexdigest()


def session_name(n: int) -> str:
    return "session-" + hashlib.md5(str(n).encode(), usedforsecurity=False).hexdigest()


def hash_of(kind: str, n: int) -> str:
    return hashlib.sha256(f"{kind} {n}".encode()).hexdigest()


class _Writer:
    def __init__(self, db: sqlite3.Connection, rng: random.Random, size: Size) -> None:
        self.db = db
        self.size = size
        words = ["".join(rng.choices("etaoinshrdlucmfw", k=rng.randrange(2, 9))) for _ in range(2000)]

        def text(n: int) -> str:
            return " ".join(rng.choices(words, k=n))

        def ids(n: int) -> bytes:
            return pack_ids([rng.randrange(49152) for _ in range(n)])

        self.messages = [pack_json([{"role": "user", "content": text(rng.randrange(8, 120))}]) for _ in range(VARIETY)]
        self.answers = [
            pack_json({"role": "assistant", "content": text(rng.randrange(20, 160))}) for _ in range(VARIETY)
        ]
        self.prompts = [ids(rng.randrange(12, 170)) for _ in range(VARIETY)]
        self.responses = [ids(120) for _ in range(VARIETY)]
        self.logprobs = [pack_logprobs([-rng.random() for _ in range(120)]) for _ in range(VARIETY)]
        tools = [{"type": "function", "function": {"name": text(1), "description": text(60)}} for _ in range(12)]
        content = Content(tools)
        db.execute("INSERT INTO blobs (hash, data) VALUES (?, ?)", (content.hash, pack_json(tools)))
        self.params = pack_json({"temperature": 0.7, "max_tokens": 512})
        self.votes = pack_json([])

    def sessions(self) -> None:
        count = self.size.turns // SESSION + 1
        rows = (
            (session_name(n), CLIENT, "header", BEGAN + n * EVERY_S * SESSION, BEGAN + (n + 1) * EVERY_S * SESSION)
            for n in range(count)
        )
        closed = ", last_seen_at, 'idle' FROM (SELECT ? AS id, ? AS client, ? AS source, ? AS made, ? AS last_seen_at)"
        columns = "(id, client, source, created_at, last_seen_at, closed_at, close_reason)"
        self.db.executemany(
            f"INSERT INTO sessions {columns} SELECT id, client, source, made, last_seen_at{closed}", rows
        )
        newest = "(SELECT id FROM sessions ORDER BY rowid DESC LIMIT 50)"
        self.db.execute(f"UPDATE sessions SET closed_at = NULL, close_reason = NULL WHERE id IN {newest}")
        values = (LONG_SESSION, CLIENT, "header", BEGAN, BEGAN)
        self.db.execute(
            "INSERT INTO sessions (id, client, source, created_at, last_seen_at) VALUES (?, ?, ?, ?, ?)", values
        )

    def turns(self) -> Iterator[dict[str, Any]]:
        size, trained = self.size, min(self.size.versions * BATCH, self.size.turns // 2)
        backlog_from = size.turns - size.backlog
        long_from = size.turns // 2
        long_until = long_from + min(LONG_TURNS, size.turns // 50)
        for n in range(size.turns):
            index, long = n % SESSION, long_from <= n < long_until
            state, exclusion, batch = TurnState.EXCLUDED, Exclusion.NO_SIGNAL, None
            if n >= backlog_from:
                state, exclusion = (TurnState.READY if n % 2 else TurnState.JUDGING), None
            elif n < trained:
                state, exclusion, batch = TurnState.TRAINED, None, n // BATCH + 1
            at, name, k = BEGAN + n * EVERY_S, turn_name(n), n * 7919 % VARIETY
            if state in (TurnState.TRAINED, TurnState.READY) or n % 3 == 0:
                self._verdict(name, at, 1 if n % 2 else -1, sample=state is not TurnState.EXCLUDED)
            chained = index > 0 and not long
            popular = n % POPULAR == 0
            yield {
                "id": name, "session_id": LONG_SESSION if long else session_name(n // SESSION),
                "idx": n - long_from if long else index, "kind": TurnKind.MAIN, "state": state, "state_at": at,
                "exclusion": exclusion, "parent_id": turn_name(n - 1) if chained else None,
                "extends_parent": chained, "bridged": chained, "version": max(0, size.versions - (n % 5)),
                "pinned": False, "model": "turnwise", "client": CLIENT, "request_hash": hash_of("request", n),
                "context_hash": hash_of("context", n), "thread_hash": hash_of("thread", 0 if popular else n),
                "answer_hash": hash_of("answer", 0 if popular else n), "format": "chat", "retry_key": None,
                "temperature": 0.7, "hint_at": 12, "finish_reason": "stop", "created_at": at, "answered_at": at + 2,
                "prompt_tokens": 200 * (index + 1), "response_tokens": 120, "messages": self.messages[k], "tools": None,
                "params": self.params, "answer": self.answers[k], "prompt_ids": self.prompts[k],
                "response_ids": self.responses[k], "logprobs": self.logprobs[k],
                "next_state": self.messages[(k + 1) % VARIETY], "next_state_at": at + 10, "lease_owner": None,
                "lease_token": None, "lease_until": None, "attempts": 0, "retry_at": 0.0, "last_error": None,
                "batch_id": batch, "tools_id": 1 if n % 2 else None, "sampled_at": at + 11, "good_verdict": None,
            }  # fmt: skip

    def _verdict(self, turn_id: str, at: float, score: int, sample: bool) -> None:
        hint = "Keep it to two sentences." if score < 0 else None
        self.db.execute(
            "INSERT INTO verdicts (turn_id, judge, score, hint, reason, votes, prompt_tokens, completion_tokens,"
            " seconds, created_at) VALUES (?, 'signals', ?, ?, 'a reply that says so', ?, 0, 0, 0.001, ?)",
            (turn_id, score, hint, self.votes, at + 11),
        )
        if sample:
            values = (turn_id, float(score), hint, at + 11)
            self.db.execute("INSERT INTO samples (turn_id, reward, hint, created_at) VALUES (?, ?, ?, ?)", values)

    def versions(self) -> None:
        metrics = pack_json({f"figure_{n}": 0.123456 * n for n in range(16)})
        for number in range(1, self.size.versions + 1):
            ids = pack_json([turn_name(n) for n in range((number - 1) * BATCH, number * BATCH)])
            at = BEGAN + number * BATCH * EVERY_S
            both = {"metrics": metrics, "gate": metrics, "created_at": at, "turn_ids": ids, "parent": number - 1}
            batch = {"id": number, "state": "done", "attempts": 1, "version": number, "finished_at": at} | both
            path = f"versions/v{number}"
            version = {
                "number": number,
                "path": path,
                "batch_id": number,
                "published_at": at,
                "serve_seq": number,
            } | both
            _insert(self.db, "batches", iter([batch]))
            _insert(self.db, "versions", iter([version]))


def _insert(db: sqlite3.Connection, table: str, rows: Iterator[dict[str, Any]]) -> None:
    first = next(rows)
    names = [name for name in first if name in schema.metadata.tables[table].c]
    sql = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
    db.execute(sql, [first[name] for name in names])
    db.executemany(sql, ([row[name] for name in names] for row in rows))
