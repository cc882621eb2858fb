"""`turnwise bench journal`: what is asked of the journal, at three sizes; durable turns/s beside SQLite's own inserts.

The journals are filled by `journal_fill`. Each operation is the program's own call, timed as a whole.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from sqlalchemy import Connection, update

from turnwise.bench.journal.fill import BEGAN, CLIENT, EVERY_S, LONG_SESSION, Size, fill, hash_of, session_name
from turnwise.bench.journal.routes import time_routes
from turnwise.bench.journal.writing import AT_ONCE, WRITE_S, accounted, plain_inserts, write_turns
from turnwise.bench.report import BenchReport, Figure, Grid
from turnwise.config import Config, load_config
from turnwise.journal import Journal, schema
from turnwise.journal.deletion.retention import Prune
from turnwise.journal.store import Store
from turnwise.types import TurnState

SHARES = (0.01, 0.1, 1.0)
LIMIT_MS = 50.0
CLOSES = 5
"""How often the long session is closed: each time its turns are put back first."""

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
            for name, spent in (time_routes(config, repeats) | measure(config, part, repeats)).items():
                grid.setdefault(name, []).append(spent)
            if share == SHARES[-1]:
                figures = _whole(config, part, filled)
    rows, slowest = [], 0.0
    for name, parts in grid.items():
        last = sorted(parts[-1])
        slowest = max(slowest, quantile(last, 0.99))
        figures_of = (median(last), quantile(last, 0.99), last[-1])
        smaller = [f"{median(part) * 1e3:.2f}" for part in parts[:-1]]
        flatness = f"{median(last) / max(median(parts[0]), 1e-4):.1f}"
        rows.append([name, *smaller, *(f"{value * 1e3:.2f}" for value in figures_of), flatness])
    figures.append(Figure("slowest operation, p99", f"{slowest * 1e3:.1f} ms", f"limit {LIMIT_MS:.0f} ms",
                          f"{slowest * 1e3 / LIMIT_MS:.2f}"))  # fmt: skip
    header = ["operation, ms", "p50 at 1 %", "p50 at 10 %", "p50", "p99", "max", "p50 against 1 %"]
    title = f"{size.turns} turns, {size.versions} versions, {size.backlog} in the backlog"
    notes = [
        f"Each operation {repeats} times, warm. Ratios of times below 0.1 ms are against 0.1 ms.",
        "Routes are asked of the real gateway over HTTP, with a token.",
        f"Durable turns: request and answer through group commit, {AT_ONCE} at once, in the full journal. SQLite: the "
        "bytes that a turn takes, as one row of one table, as many to a transaction, with the same settings.",
    ]
    return BenchReport("turnwise bench journal", figures, notes, [Grid(title, header, rows)])


def quantile(times: list[float], share: float) -> float:
    """The time that this share of them is not above."""
    return sorted(times)[min(len(times) - 1, int(len(times) * share))]


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

    timed("serving version", lambda n: journal.versions.latest())
    timed("gate probes", lambda n: journal.batches.gate_probes(8, []))
    timed("same request", lambda n: journal.lookups.same_request(CLIENT, hash_of("request", place(n))))
    timed("by context", lambda n: journal.lookups.by_context(CLIENT, [hash_of("context", place(n))], None))
    timed("by thread", lambda n: journal.lookups.by_thread(CLIENT, hash_of("thread", place(n)), None))
    timed(
        "by answer, one that was given often", lambda n: journal.lookups.by_answer(CLIENT, hash_of("answer", 0), None)
    )
    of_session = lambda n: journal.lookups.by_answer(CLIENT, hash_of("answer", 0), session_name(place(n) // 10))  # noqa: E731
    timed("the same in a session", of_session)
    timed("idle sessions", lambda n: journal.sessions.idle(BEGAN))
    timed("recover interrupted", lambda n: journal.turns.recover_interrupted(lambda _: False))
    timed("sessions list", lambda n: journal.sessions.last_seen(50))
    timed("sessions show", lambda n: journal.sessions.show(session_name(place(n) // 10)))
    timed("close session", lambda n: journal.sessions.close(session_name(place(n) // 10), "done"))
    times["close a session of very many waiting turns, each transaction"] = _close_long(config)
    timed("claim for judging", lambda n: journal.judging.claim("judge", 4, 60))
    later = journal.store.monotonic() + 500
    with journal.store.transaction() as c:
        c.execute(update(schema.turns).where(schema.JUDGING).values(retry_at=later))
    timed("the same, all wait to be tried again", lambda n: journal.judging.claim("judge", 4, 60))

    def claim_batch(n: int) -> None:
        batch = journal.batches.claim("trainer", 60)
        assert batch is not None
        batches.append(batch)

    batches: list[Any] = []
    times["claim batch"] = []
    for n in range(repeats):
        started = time.perf_counter()
        claim_batch(n)
        times["claim batch"].append(time.perf_counter() - started)
        journal.batches.release(batches.pop())
    timed("retention, one transaction", _retention(journal))
    train = config.train.model_copy(update={"max_staleness": 0})
    with journal.store.transaction() as c:
        c.exec_driver_sql("UPDATE turns SET version = 0 WHERE state = 'ready'")
    journal.store.config = config.model_copy(update={"train": train})
    timed("claim batch, all are stale", lambda n: journal.batches.claim("trainer", 60), min(repeats, 20))
    journal.close()
    return times


class _TimedStore(Store):
    """Says how long each of its transactions took, in seconds: most of that time nobody else can write."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.taken: list[float] = []
        super().__init__(*args, **kwargs)

    @contextmanager
    def transaction(self, leasing: bool = False) -> Iterator[Connection]:
        started = time.perf_counter()
        with super().transaction(leasing) as c:
            yield c
        self.taken.append(time.perf_counter() - started)


def _close_long(config: Config) -> list[float]:
    """Seconds of each transaction of closing a session that has very many turns without a next state."""
    store = _TimedStore.open(config)
    journal = Journal(store)
    taken: list[float] = []
    for _ in range(CLOSES):
        with journal.store.transaction() as c:
            long = schema.turns.c.session_id == LONG_SESSION
            c.execute(update(schema.turns).where(long).values(state=TurnState.WAITING, exclusion=None))
            reopened = update(schema.sessions).where(schema.sessions.c.id == LONG_SESSION)
            c.execute(reopened.values(closed_at=None, close_reason=None))
        store.taken.clear()
        journal.sessions.close(LONG_SESSION, "done")
        taken += store.taken
    journal.close()
    return taken


def _retention(journal: Journal) -> Callable[[int], object]:
    work = Prune(journal, BEGAN + EVERY_S * 1e9, None)
    return lambda n: work.step()


def _whole(config: Config, size: Size, filled: float) -> list[Figure]:
    """What the full journal takes, and how fast it takes more."""
    journal = Journal.open(config)
    with journal.store.reading() as c:
        before = journal.store.database.used_bytes(c)
    turns = write_turns(journal)
    with journal.store.reading() as c:
        added = (journal.store.database.used_bytes(c) - before) / max(1, turns)
    with accounted(journal) as spent:
        again = write_turns(journal)
    journal.close()
    speed = turns / WRITE_S
    plain = plain_inserts(config.home / "plain.db", int(added), max(1, round(again / max(1, spent.commits))))
    rest = spent.in_groups - spent.in_statements - spent.in_commits
    shares = " · ".join(f"{part / spent.in_groups:.0%}" for part in (spent.in_statements, spent.in_commits, rest))
    return [
        Figure("bytes per turn, with all indexes, verdicts and versions", f"{before / size.turns:.0f}"),
        Figure("time to fill it for this bench", f"{filled:.0f} s"),
        Figure("durable turns", f"{speed:.0f} /s", f"SQLite's inserts {plain:.0f} /s", f"{speed / plain:.2f}"),
        Figure("the writing thread's time: statements · commits · around them", shares,
               f"{spent.statements / again:.1f} statements a turn, {again / spent.commits:.0f} turns a commit"),
    ]  # fmt: skip
