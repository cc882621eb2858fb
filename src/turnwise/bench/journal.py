"""`turnwise bench journal`: what is asked of the journal, at three sizes; durable turns/s beside SQLite's own inserts.

The journals are filled by `journal_fill`. Each operation is the program's own call, timed as a whole.
"""

from __future__ import annotations

import sqlite3
import tempfile
import time
import uuid
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any

from turnwise.bench.journal_fill import BEGAN, CLIENT, EVERY_S, LONG_SESSION, Size, fill, hash_of, session_name
from turnwise.bench.report import BenchReport, Figure, Grid
from turnwise.config import Config, load_config
from turnwise.journal import Answer, Journal, NewTurn
from turnwise.journal.core import PRAGMAS
from turnwise.journal.erasing import used_bytes
from turnwise.journal.retention import Prune
from turnwise.types import FinishReason, Message, TurnKind

SHARES = (0.01, 0.1, 1.0)
LIMIT_MS = 50.0
AT_ONCE = 64
"""Turns under way together in the measurement of durable turns."""
WRITE_S = 5.0

Times = dict[str, list[float]]


def bench_journal(size: Size, repeats: int) -> BenchReport:
    """All figures. The journals stand in a temporary folder: about 3 kB a turn."""
    grid: dict[str, list[list[float]]] = {}
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as scratch:
        for share in SHARES:
            home = Path(scratch) / f"home-{share}"
            config = load_config(overrides={"home": home})
            part = size.part(share)
            started = time.perf_counter()
            fill(config, part)
            filled = time.perf_counter() - started
            for name, spent in measure(config, part, repeats).items():
                grid.setdefault(name, []).append(spent)
            if share == SHARES[-1]:
                figures = _whole(config, part, filled)
    rows, slowest = [], 0.0
    for name, parts in grid.items():
        last = sorted(parts[-1])
        slowest = max(slowest, _quantile(last, 0.99))
        figures_of = (median(last), _quantile(last, 0.99), last[-1])
        smaller = [f"{median(part) * 1e3:.2f}" for part in parts[:-1]]
        flatness = f"{median(last) / max(median(parts[0]), 1e-4):.1f}"
        rows.append([name, *smaller, *(f"{value * 1e3:.2f}" for value in figures_of), flatness])
    figures.append(Figure("slowest operation, p99", f"{slowest * 1e3:.1f} ms", f"limit {LIMIT_MS:.0f} ms",
                          f"{slowest * 1e3 / LIMIT_MS:.2f}"))  # fmt: skip
    header = ["operation, ms", "p50 at 1 %", "p50 at 10 %", "p50", "p99", "max", "p50 against 1 %"]
    title = f"{size.turns} turns, {size.versions} versions, {size.backlog} in the backlog"
    notes = [
        f"Each operation {repeats} times, warm. Ratios of times below 0.1 ms are against 0.1 ms.",
        f"Durable turns: request and answer through group commit, {AT_ONCE} at once, in the full journal. SQLite: the "
        "bytes that a turn takes, as one row of one table, as many to a transaction, with the same settings.",
    ]
    return BenchReport("turnwise bench journal", figures, notes, [Grid(title, header, rows)])


def _quantile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def measure(config: Config, size: Size, repeats: int) -> Times:
    """Seconds of each operation."""
    journal = Journal.open(config)
    newest = size.turns - size.backlog - 1
    times: Times = {}

    def timed(name: str, operation: Callable[[int], object], count: int = repeats) -> None:
        operation(0)
        times[name] = []
        for n in range(1, count + 1):
            started = time.perf_counter()
            operation(n)
            times[name].append(time.perf_counter() - started)

    def place(n: int) -> int:
        return (newest - n * 7919) % newest

    timed("status, metrics", lambda n: journal.status())
    timed("models", lambda n: journal.newest_versions(100))
    timed("serving version", lambda n: journal.latest_version())
    timed("gate probes", lambda n: journal.gate_probes(8, []))
    timed("same request", lambda n: journal.same_request(CLIENT, hash_of("request", place(n))))
    timed("by context", lambda n: journal.turns_by_context(CLIENT, [hash_of("context", place(n))], None))
    timed("by thread", lambda n: journal.turns_by_thread(CLIENT, hash_of("thread", place(n)), None))
    timed("by answer, one that was given often", lambda n: journal.turns_by_answer(CLIENT, hash_of("answer", 0), None))
    of_session = lambda n: journal.turns_by_answer(CLIENT, hash_of("answer", 0), session_name(place(n) // 10))  # noqa: E731
    timed("the same in a session", of_session)
    timed("idle sessions", lambda n: journal.idle_sessions(BEGAN))
    timed("recover interrupted", lambda n: journal.recover_interrupted(lambda _: False))
    timed("sessions list", lambda n: journal.list_sessions(50))
    timed("sessions show", lambda n: journal.show_session(session_name(place(n) // 10)))
    timed("close session", lambda n: journal.close_session(session_name(place(n) // 10), "done"))
    timed("close a session of very many turns", lambda n: journal.close_session(LONG_SESSION, "done"), min(repeats, 5))
    timed("claim for judging", lambda n: journal.claim_for_judging("judge", 4, 60))
    with journal.transaction() as c:
        c.exec_driver_sql("UPDATE turns SET retry_at = ? WHERE state = 'judging'", (journal.monotonic() + 500,))
    timed("the same, all wait to be tried again", lambda n: journal.claim_for_judging("judge", 4, 60))

    def claim_batch(n: int) -> None:
        batch = journal.claim_batch("trainer", 60)
        assert batch is not None
        batches.append(batch)

    batches: list[Any] = []
    times["claim batch"] = []
    for n in range(repeats):
        started = time.perf_counter()
        claim_batch(n)
        times["claim batch"].append(time.perf_counter() - started)
        journal.release_batch(batches.pop())
    timed("retention, one transaction", _retention(journal))
    train = config.train.model_copy(update={"max_staleness": 0})
    with journal.transaction() as c:
        c.exec_driver_sql("UPDATE turns SET version = 0 WHERE state = 'ready'")
    journal.config = config.model_copy(update={"train": train})
    timed("claim batch, all are stale", lambda n: journal.claim_batch("trainer", 60), min(repeats, 20))
    journal.close()
    return times


def _retention(journal: Journal) -> Callable[[int], object]:
    work = Prune(journal, BEGAN + EVERY_S * 1e9, None)
    return lambda n: work.step()


def _whole(config: Config, size: Size, filled: float) -> list[Figure]:
    """What the full journal takes, and how fast it takes more."""
    journal = Journal.open(config)
    with journal.reading() as c:
        before = used_bytes(c)
    turns, groups = _write_turns(journal)
    with journal.reading() as c:
        added = (used_bytes(c) - before) / max(1, turns)
    journal.close()
    speed = turns / WRITE_S
    rows_a_group = max(1, round(turns / max(1, groups)))
    plain = _plain_inserts(config.home / "plain.db", int(added), rows_a_group)
    return [
        Figure("bytes per turn, with all indexes, verdicts and versions", f"{before / size.turns:.0f}"),
        Figure("time to fill it for this bench", f"{filled:.0f} s"),
        Figure("durable turns", f"{speed:.0f} /s", f"SQLite's inserts {plain:.0f} /s", f"{speed / plain:.2f}"),
    ]


def _write_turns(journal: Journal) -> tuple[int, int]:
    """Turns that were asked for and answered, both durably, within WRITE_S; and the transactions they took."""
    commits = 0
    group = journal.writes._transaction  # counted where it is entered

    def counted() -> Any:
        nonlocal commits
        commits += 1
        return group()

    journal.writes._transaction = counted
    question: list[Message] = [{"role": "user", "content": "What should I have for dinner tomorrow? " * 8}]
    answer: Message = {"role": "assistant", "content": "Something that is quick to make and that you like. " * 8}
    under_way: deque[tuple[str, Future[None]]] = deque()
    done, n = 0, 0
    deadline = time.perf_counter() + WRITE_S
    finishing: deque[Future[None]] = deque()
    while time.perf_counter() < deadline:
        while len(under_way) + len(finishing) < AT_ONCE:
            n += 1
            new = _new_turn(n, question)
            under_way.append((new.id, journal.begin_turn_soon(new)))
        turn_id, begun = under_way.popleft()
        begun.result()
        hashes = [hash_of(kind, -n) for kind in ("context", "thread", "answer")]
        said = Answer(answer, hashes[0], FinishReason.STOP, list(range(120)), [-0.5] * 120, hashes[1], hashes[2])
        finishing.append(journal.finish_turn_soon(turn_id, said))
        while finishing and (finishing[0].done() or len(finishing) >= AT_ONCE // 2):
            finishing.popleft().result()
            done += 1
    return done, commits


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
        supersedes=None,
    )


def _plain_inserts(path: Path, size: int, rows_a_group: int) -> float:
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
