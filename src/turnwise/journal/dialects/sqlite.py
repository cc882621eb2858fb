"""SQLite: one file of this machine.

In WAL mode with full synchronisation: what a transaction committed survives `kill -9` and a power cut. Every
transaction that writes takes the write lock at its start, so that what it read still holds when it writes.
"""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from filelock import FileLock, Timeout
from sqlalchemy import Connection, Engine, NullPool, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import QueuePool

from turnwise.errors import JournalError, JournalFull, JournalUnavailable
from turnwise.journal.dialects.base import Database

T = TypeVar("T")

FAULTS = {
    "readonly": "is read-only; give this user write access to the folder or choose another one with --home",
    "disk is full": "cannot be written: the disk is full; free some space, nothing already recorded is lost",
    "unable to open": "cannot be opened; check that the folder exists and is writable",
    "locked": "is locked by another writer for too long; look for a second turnwise on the same home",
    "malformed": "is damaged; move it away and restore a copy",
    "not a database": "is not a turnwise journal; move the file away or choose another home",
}
WHOLE = {
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_NOTADB,
}
"""SQLite's words for faults of the whole database: another write would meet the same."""
ROOMLESS = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)
NO_ROOM = 1 << 16
"""Bytes. With less than this left on the disk, these faults of SQLite's are taken for want of room."""
# What is deleted is overwritten at once, so that what was forgotten is not left in a page's unused part.
PRAGMAS = ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "secure_delete=ON")
MOST_TRIES = 5
"""Looks at a journal that another process begins to use, or lets go of, meanwhile."""
TRUNCATE_LIMIT_S = 10.0
"""How long to wait for readers before the write-ahead log can be emptied."""


class SQLite(Database):
    """The journal as the file at `path`. `patience_s` is the longest wait for another writer.

    BEGIN IMMEDIATE keeps other writers out, and the lock in the home a second gateway.
    """

    shared = False
    keeps_order = True
    frees_at_once = True

    def __init__(self, path: Path, patience_s: float) -> None:
        self.path = path
        self.place = str(path)
        self.snapshot: dict[str, Any] = {"read_only": True}
        self._patience_s = patience_s
        self._options = {"timeout": patience_s, "check_same_thread": False}

    def exists(self) -> bool:
        return self.path.exists()

    # -- opening ------------------------------------------------------------------------------------------------

    def open_engine(self) -> Engine:
        engine = create_engine(f"sqlite:///{self.path}", poolclass=QueuePool, connect_args=self._options)
        _configure(engine, PRAGMAS)
        return engine

    @contextmanager
    def preparing(self, engine: Engine) -> Iterator[Connection]:
        """The journal's files are made here, and they are its owner's alone."""
        path = self.path
        try:
            with FileLock(f"{path}.lock", timeout=self._patience_s):
                path.touch(mode=0o600)  # before SQLite makes -wal and -shm, which take over its mode
                for file in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
                    with suppress(FileNotFoundError):
                        file.chmod(0o600)
                with engine.begin() as connection:
                    yield connection
        except Timeout:
            raise JournalError(f"the journal {path} is being migrated by another process; try again") from None
        except OSError as e:
            raise JournalError(f"the home folder {path.parent} cannot be used: {e.strerror or e}; see --home") from e

    def look(self, read: Callable[[Engine], T]) -> T:
        """The file is read as it lies there; `read` is called again where it changed meanwhile."""
        for tries_left in reversed(range(MOST_TRIES)):
            # Without a write-ahead log no other process has the journal open, and SQLite needs no files of its own
            # beside it: it takes the file for one that does not change. A server that starts makes that untrue.
            before = self._state()
            alone = not before[0]
            try:
                found = self._look(read, alone)
            except JournalError:
                if not alone or not tries_left or self._state() == before:
                    raise
            else:
                if not alone or self._state() == before:
                    return found
        raise JournalError(f"the journal {self.path} changed all the time it was read; try again")

    def _look(self, read: Callable[[Engine], T], alone: bool) -> T:
        url = f"sqlite:///file:{quote(str(self.path))}?mode=ro{'&immutable=1' if alone else ''}&uri=true"
        engine = create_engine(url, poolclass=NullPool, connect_args=self._options)
        _configure(engine, pragmas=())
        try:
            return read(engine)
        finally:
            engine.dispose()

    def _state(self) -> tuple[bool, int, int]:
        """Whether a write-ahead log is there, and what changes when the file does."""
        logged = self.path.with_name(f"{self.path.name}-wal").exists()
        try:
            stat = self.path.stat()
        except FileNotFoundError:
            return logged, 0, 0
        return logged, stat.st_mtime_ns, stat.st_size

    # -- transactions -------------------------------------------------------------------------------------------

    def now(self, c: Connection) -> float:
        """One clock for all processes of a machine between two starts of it (clocks.py)."""
        return time.monotonic()

    def fault(self, error: DBAPIError) -> JournalError:
        text = str(error.orig)
        code = (getattr(error.orig, "sqlite_errorcode", None) or 0) & 0xFF  # the rest says more exactly what it was
        full = code == sqlite3.SQLITE_FULL or (code in ROOMLESS and self._no_room())
        kind = JournalFull if full else JournalUnavailable if code in WHOLE else JournalError
        text = "disk is full" if full else text
        for mark, advice in FAULTS.items():
            if mark in text:
                return kind(f"the journal {self.path} {advice}")
        return kind(f"the journal {self.path} failed: {text}")

    def _no_room(self) -> bool:
        try:
            return shutil.disk_usage(self.path.parent).free < NO_ROOM
        except OSError:
            return False

    # -- size and tidiness --------------------------------------------------------------------------------------

    def used_bytes(self, c: Connection) -> int:
        pages, free, size = (
            c.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in ("page_count", "freelist_count", "page_size")
        )
        return (pages - free) * size

    def file_bytes(self, engine: Engine) -> int:
        self.scrub(engine)
        return self.path.stat().st_size

    def scrub(self, engine: Engine) -> None:
        """Bring the write-ahead log into the file and empty it; what is deleted there is overwritten. Raises
        JournalError where readers do not let go."""
        deadline = time.monotonic() + TRUNCATE_LIMIT_S
        while True:
            busy, *_ = _outside_of_transactions(engine, "PRAGMA wal_checkpoint(TRUNCATE)")[0]
            if not busy:
                return
            if time.monotonic() > deadline:
                raise JournalError(
                    f"what was deleted still stands in {self.path}-wal, because another process reads the journal; "
                    "run `turnwise journal vacuum` once it ended"
                )
            time.sleep(0.05)

    def rewrite(self, engine: Engine) -> None:
        _outside_of_transactions(engine, "VACUUM")

    def damage(self, c: Connection, whole: bool = False) -> list[str]:
        check = "integrity_check" if whole else "quick_check(1)"
        return [str(row[0]) for row in c.exec_driver_sql(f"PRAGMA {check}") if row[0] != "ok"]


def _configure(engine: Engine, pragmas: tuple[str, ...]) -> None:
    """Transactions are ours to begin: one that reads takes no lock, one that writes takes it at once."""

    @event.listens_for(engine, "connect")
    def _on_connect(dbapi_connection: Any, _record: Any) -> None:
        dbapi_connection.isolation_level = None  # the driver must not open transactions of its own
        for pragma in pragmas:
            dbapi_connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _on_begin(connection: Connection) -> None:
        read_only = connection.get_execution_options().get("read_only", False)
        connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")


def _outside_of_transactions(engine: Engine, statement: str) -> list[Any]:
    connection = engine.raw_connection()
    try:
        return connection.driver_connection.execute(statement).fetchall()  # type: ignore[union-attr]  # it is open
    except sqlite3.Error as e:
        raise DBAPIError(None, None, e) from e
    finally:
        connection.close()
