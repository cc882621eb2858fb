"""What a task asks of a site's database: queries that only read, on what the site holds now and on what it began with.

A query is a task's own, so that it is held to reading one file, within limits of time and rows.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from turnwise.environments.base import InfrastructureFailure
from turnwise.errors import DataError

MOST_ROWS = 20_000
QUERY_S = 10.0
"""Longest time for one query, and for its wait on a site that writes."""
MOST_QUERIES = 20
_STEPS = 10_000
"""Instructions of SQLite's between two looks at the clock."""
_READS = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
Row = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class DatabaseCheck:
    """A query, and the rows that it gives once the task is done. None: those that it gave before."""

    query: str
    rows: tuple[Row, ...] | None


def read_checks(given: object) -> tuple[DatabaseCheck, ...]:
    """Checks as a task has them: objects with `query`, and with `rows` or `"same": true`. Raises DataError."""
    fault = DataError("'checks' is a list of objects, each with a 'query', and either 'rows' or \"same\": true")
    if not isinstance(given, list) or len(given) > MOST_QUERIES:
        raise fault
    found = []
    for each in given:
        if not isinstance(each, Mapping) or set(each) not in ({"query", "rows"}, {"query", "same"}):
            raise fault
        query, rows = each["query"], each.get("rows")
        if not isinstance(query, str) or ("same" in each and each["same"] is not True):
            raise fault
        if "rows" in each and not (isinstance(rows, list) and all(isinstance(row, list) for row in rows)):
            raise fault
        found.append(DatabaseCheck(query, None if rows is None else tuple(map(tuple, rows))))
    return tuple(found)


def rows_of(database: Path, query: str) -> list[Row]:
    """What a query gives. Raises DataError where it is none that may be asked, InfrastructureFailure where the
    database cannot be read."""
    until = time.monotonic() + QUERY_S
    try:
        with closing(sqlite3.connect(f"file:{quote(str(database))}?mode=ro", uri=True, timeout=QUERY_S)) as open_one:
            open_one.set_authorizer(_only_reads)
            open_one.set_progress_handler(lambda: time.monotonic() > until, _STEPS)
            found = open_one.execute(query).fetchmany(MOST_ROWS + 1)
    except sqlite3.OperationalError as e:
        if any(word in str(e) for word in ("unable to open", "disk I/O", "locked")):
            raise InfrastructureFailure(f"the database of the site cannot be read: {e}") from e
        raise DataError(f"the query {query[:200]!r} cannot be asked: {e}") from e
    except (sqlite3.Error, sqlite3.Warning) as e:
        raise DataError(f"the query {query[:200]!r} cannot be asked: {e}") from e
    if len(found) > MOST_ROWS:
        raise DataError(f"the query {query[:200]!r} gives more than {MOST_ROWS} rows")
    return found


def not_met(checks: Sequence[DatabaseCheck], now: Path, before: Path) -> list[str]:
    """The queries that give something else than they have to."""
    return [
        check.query
        for check in checks
        if rows_of(now, check.query) != list(rows_of(before, check.query) if check.rows is None else check.rows)
    ]


def _only_reads(action: int, *_: object) -> int:
    return sqlite3.SQLITE_OK if action in _READS else sqlite3.SQLITE_DENY
