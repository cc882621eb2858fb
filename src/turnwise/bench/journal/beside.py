"""`turnwise bench journal --url`: the same journal in SQLite's file and on PostgreSQL, asked the same, side by side."""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import median

from sqlalchemy import Boolean, text

from turnwise.bench.journal.fill import Size, fill
from turnwise.bench.journal.operations import Times, measure, quantile
from turnwise.bench.journal.own_server import own_server
from turnwise.bench.journal.routes import time_routes
from turnwise.bench.journal.writing import AT_ONCE, WRITE_S, write_turns
from turnwise.bench.report import BenchReport, Figure, Grid
from turnwise.config import Config, load_config
from turnwise.errors import TurnwiseError
from turnwise.journal import Journal, schema
from turnwise.journal.dialects.postgres import TABLES

SMALLER = 0.1
"""The share of the journal at which PostgreSQL is asked first: what grows with it shows."""
OWN = "own"
"""The address that means a server of the bench's own."""


def bench_beside(size: Size, repeats: int, url: str) -> BenchReport:
    """All figures. `url` is of an empty database, which is empty again afterwards, or `OWN`. Raises TurnwiseError."""
    smaller = size.part(SMALLER)
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if url == OWN:
            server = stack.enter_context(own_server())
            server.run("CREATE DATABASE bench")
            url = server.url("bench")
        small, _ = _asked(_home(scratch / "small", smaller), smaller, repeats, url)
        config = _home(scratch / "whole", size)
        on_server, written = _asked(config, size, repeats, url)
        in_file, plain = time_routes(config, repeats) | measure(config, size, repeats), _written(config)
    rows = [_row(name, in_file[name], small[name], times) for name, times in on_server.items()]
    header = ["operation, ms", "SQLite p50", "p99", "PostgreSQL p50 at 10 %", "p50", "p99"]
    title = f"{size.turns} turns, {size.versions} versions, {size.backlog} in the backlog"
    figures = [Figure("durable turns, PostgreSQL", f"{written:.0f} /s", f"SQLite {plain:.0f} /s",
                      f"{written / plain:.2f}")]  # fmt: skip
    notes = [
        f"Each operation {repeats} times, warm, in one journal: filled as SQLite's file, and copied to the server. "
        "Ratios of times below 0.1 ms are against 0.1 ms.",
        f"Durable turns: request and answer through group commit, {AT_ONCE} at once, in the full journal, for "
        f"{WRITE_S:.0f} s.",
    ]
    ratios = ["p50 against SQLite", "p50 against 10 %"]
    return BenchReport("turnwise bench journal --url", figures, notes, [Grid(title, header + ratios, rows)])


def _row(name: str, in_file: list[float], small: list[float], on_server: list[float]) -> list[str]:
    middle = median(on_server)
    times = (median(in_file), quantile(in_file, 0.99), median(small), middle, quantile(on_server, 0.99))
    ratios = (middle / max(median(other), 1e-4) for other in (in_file, small))
    return [name, *(f"{value * 1e3:.2f}" for value in times), *(f"{ratio:.1f}" for ratio in ratios)]


def _home(home: Path, size: Size) -> Config:
    config = load_config(overrides={"home": home})
    fill(config, size)
    return config


def _asked(config: Config, size: Size, repeats: int, url: str) -> tuple[Times, float]:
    """Seconds of each operation on the server, and durable turns a second. The database is empty before and after."""
    there = load_config(overrides={"home": config.home.with_name(f"{config.home.name}-on-server"), "journal.url": url})
    copy_rows(config.journal_path, there)
    try:
        return time_routes(there, repeats) | measure(there, size, repeats), _written(there)
    finally:
        with closing(Journal.open(there)) as journal, journal.store.engine.begin() as c:
            c.exec_driver_sql(f"TRUNCATE {', '.join(TABLES)} RESTART IDENTITY")


def _written(config: Config) -> float:
    with closing(Journal.open(config)) as journal:
        return write_turns(journal) / WRITE_S


def copy_rows(file: Path, config: Config) -> None:
    """Copy SQLite's rows into an empty journal on a server, in their order. Raises TurnwiseError where it is not."""
    with closing(Journal.open(config)) as journal, closing(sqlite3.connect(file)) as db:
        with journal.store.reading() as c:
            if c.execute(text("SELECT 1 FROM turns UNION ALL SELECT 1 FROM sessions LIMIT 1")).first():
                raise TurnwiseError("the database holds a journal with turns; give the bench an empty one")
        with journal.store.engine.begin() as c:
            c.exec_driver_sql("TRUNCATE meta, loops")
            for table in schema.metadata.sorted_tables:
                c.exec_driver_sql(f"ALTER TABLE {table.name} DISABLE TRIGGER USER")  # what they keep is copied
                columns = [column for column in table.c if not column.system]
                names = ", ".join(f'"{column.name}"' for column in columns)  # one is called `end`
                is_bool = [isinstance(column.type, Boolean) for column in columns]
                kept = "" if not table.dialect_options["sqlite"]["with_rowid"] else " ORDER BY rowid"
                driver = c.connection.driver_connection
                assert driver is not None
                with driver.cursor().copy(f"COPY {table.name} ({names}) FROM STDIN") as copy:
                    for row in db.execute(f"SELECT {names} FROM {table.name}{kept}"):
                        copy.write_row([bool(v) if yes else v for v, yes in zip(row, is_bool, strict=True)])
                if "id" in table.c and table.c.id.identity is not None:
                    last = f"(SELECT coalesce(max(id), 0) + 1 FROM {table.name})"
                    c.exec_driver_sql(f"SELECT setval(pg_get_serial_sequence('{table.name}', 'id'), {last}, false)")
            for name in TABLES:
                c.exec_driver_sql(f"ALTER TABLE {name} ENABLE TRIGGER USER")
        with journal.store.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as c:
            c.exec_driver_sql(f"VACUUM ANALYZE {', '.join(TABLES)}")
