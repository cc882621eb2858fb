"""Opening the journal, transactions, and the one place where a turn changes state.

SQLite in WAL mode with full synchronisation: what a transaction committed survives `kill -9` and a power cut. Every
transaction takes the write lock at its start, so that what it read still holds when it writes.
"""

from __future__ import annotations

import logging
import shutil
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from alembic import command
from alembic.config import Config as AlembicConfig
from alembic.util import CommandError as UnknownRevision
from filelock import FileLock, Timeout
from sqlalchemy import Connection, Engine, Row, bindparam, create_engine, event, insert, select, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import QueuePool

from turnwise.config import Config
from turnwise.errors import JournalError, JournalFull, JournalUnavailable
from turnwise.journal import schema
from turnwise.journal.clocks import boot_id, end_leases, enter_boot, first_meta, last_turn, lower_boot_turn, meta
from turnwise.journal.group_commit import GroupCommit
from turnwise.journal.schema import pack_json, unpack_ids, unpack_json, unpack_logprobs
from turnwise.messages import from_chat, history_from_chat
from turnwise.types import REVIVABLE, TRANSITIONS, Exclusion, FinishReason, Turn, TurnKind, TurnState

log = logging.getLogger(__name__)

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

# Statements of the hot path are made once: building one takes longer than SQLite takes to run it.
_STATE = select(schema.turns.c.state, schema.turns.c.exclusion).where(schema.turns.c.id == bindparam("which"))
_MOVE = update(schema.turns).where(schema.turns.c.id == bindparam("which"))
_LOG = insert(schema.events)
_BLOB = select(schema.blobs.c.data).where(schema.blobs.c.id == bindparam("which"))
_ANCESTORS = """
WITH RECURSIVE chain (id, depth) AS (
    SELECT ?, 0
    UNION ALL
    SELECT turns.parent_id, depth + 1 FROM chain CROSS JOIN turns ON turns.id = chain.id WHERE turns.extends_parent
)
SELECT extends_parent, {columns}
FROM chain CROSS JOIN turns ON turns.id = chain.id ORDER BY depth DESC
"""
_WHOLE = _ANCESTORS.format(columns="messages, prompt_ids, answer, response_ids")
_IDS = _ANCESTORS.format(columns="prompt_ids, response_ids")
"""All turns that a turn's context is stored on, the first one first; in one statement, for there may be hundreds."""


class IllegalMove(JournalError):
    """A turn was asked to make a move that the transition table does not have."""


class JournalCore:
    """A connection pool, transactions and state moves.

    `clock` gives Unix seconds, which are only shown. `monotonic` gives the seconds that deadlines are counted in, from
    any start, but the same for all processes of one `boot`. Tests inject them; one injected clock stands for both.
    """

    def __init__(
        self,
        engine: Engine,
        path: Path,
        config: Config,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] | None = None,
    ) -> None:
        self.engine = engine
        self.path = path
        self.config = config
        self.clock = clock
        self.monotonic = monotonic or (time.monotonic if clock is time.time else clock)
        self.boot_turn = 0
        """The last turn (its `clocks.ORDER`) of earlier boots."""
        self._boot = ""
        self.id = ""
        """What this journal is called in its records. A copy of it has the same name."""
        self.write_fault: JournalUnavailable | None = None
        """Why the last write failed, where no other would have succeeded; None again from the next one that does."""
        self._to_enter: str | None = None  # the boot, until a write has taken the journal into it
        self.writes = GroupCommit(self.transaction, config.journal.busy_timeout_s)

    @classmethod
    def open(
        cls,
        config: Config,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] | None = None,
        boot: str | None = None,
    ) -> Self:
        """Open the journal of `config.home`, creating or migrating it when needed. Raises JournalError."""
        path = config.journal_path
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            engine = create_engine(
                f"sqlite:///{path}",
                poolclass=QueuePool,
                connect_args={"timeout": config.journal.busy_timeout_s, "check_same_thread": False},
            )
            configure_sqlite(engine, PRAGMAS)
            with FileLock(f"{path}.lock", timeout=config.journal.busy_timeout_s), _readable_faults(path):
                path.touch(mode=0o600)  # before SQLite makes -wal and -shm, which take over its mode
                for file in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
                    with suppress(FileNotFoundError):
                        file.chmod(0o600)
                with engine.begin() as connection:
                    migrate(connection)
                journal = cls(engine, path, config, clock, monotonic)
                journal._enter(boot or boot_id())
        except Timeout:
            raise JournalError(f"the journal {path} is being migrated by another process; try again") from None
        except OSError as e:
            raise JournalError(f"the home folder {path.parent} cannot be used: {e.strerror or e}; see --home") from e
        return journal

    def _enter(self, boot: str) -> None:
        """Take up the journal in this boot of the machine. A full disk does not keep it from being read.

        Where there is no room for that now, it is done with the first write that succeeds, in its transaction: so
        every lease that was given in this boot is younger, and no later start ends it.
        """
        self._to_enter = boot
        try:
            with self.transaction():
                pass
        except JournalFull as e:
            log.warning("leases from before this start stand until there is room to end them: %s", e)
        with self.reading() as c:
            self.id = meta(c, "id") or ""
            self._boot, self.boot_turn = boot, last_turn(c)
            self.read_boot_turn(c)

    def read_boot_turn(self, c: Connection) -> None:
        """Take over that another process took the newest turns out, so that their places are given again."""
        if meta(c, "boot") == self._boot:
            self.boot_turn = min(self.boot_turn, int(meta(c, "boot_turn") or 0))

    def end_leases(self) -> None:
        """Take back every lease and every wait. For who knows that no judge and no trainer of this home lives."""
        with self.transaction() as c:
            end_leases(c, self.monotonic())

    def close(self) -> None:
        self.writes.close()
        self.engine.dispose()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """One atomic write. Raises JournalError with a sentence for a full disk, a read-only folder and the like."""
        try:
            with _readable_faults(self.path), self.engine.begin() as connection:
                if self._to_enter is not None:
                    self.id = first_meta(connection, "id", uuid.uuid4().hex[:12])
                    if meta(connection, "boot") != self._to_enter:
                        enter_boot(connection, self._to_enter, self.monotonic())
                    lower_boot_turn(connection)
                yield connection
        except JournalUnavailable as e:
            self.write_fault = e
            raise
        self._to_enter = self.write_fault = None

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One consistent snapshot; takes no lock, so that a long read never holds up a writer."""
        with _readable_faults(self.path), self.engine.connect() as connection:
            yield connection.execution_options(read_only=True)

    @contextmanager
    def outside(self) -> Iterator[Any]:
        """The driver's own connection, for what SQLite does outside of transactions."""
        with _readable_faults(self.path):
            connection = self.engine.raw_connection()
            try:
                yield connection
            except sqlite3.Error as e:
                raise DBAPIError(None, None, e) from e
            finally:
                connection.close()

    # -- state moves --------------------------------------------------------------------------------------------

    def move(
        self,
        c: Connection,
        turn_id: str,
        to: TurnState,
        *,
        exclusion: Exclusion | None = None,
        row: Any = None,
        **columns: Any,
    ) -> TurnState:
        """Move a turn, or raise IllegalMove. Leases end with every move. Returns the state it came from.

        `row` is the turn's state and exclusion, if this transaction has read them: nobody else writes meanwhile.
        """
        if row is None:
            row = c.execute(_STATE, {"which": turn_id}).one_or_none()
        if row is None:
            raise JournalError(f"there is no turn {turn_id}")
        current = self._check_move(turn_id, row, to, exclusion)
        c.execute(_MOVE, {"which": turn_id} | self._moved(to, exclusion) | columns)
        self.log(c, "move", turn_id, {"from": current, "to": to, "reason": exclusion})
        return current

    @staticmethod
    def _check_move(turn_id: str, row: Any, to: TurnState, exclusion: Exclusion | None) -> TurnState:
        current = TurnState(row.state)
        legal = to in TRANSITIONS[current]
        if current is TurnState.EXCLUDED and row.exclusion not in REVIVABLE:
            legal = False
        if not legal or (to is TurnState.EXCLUDED) != (exclusion is not None):
            raise IllegalMove(f"turn {turn_id} cannot go from {current} to {to}")
        return current

    def _moved(self, to: TurnState, exclusion: Exclusion | None) -> dict[str, Any]:
        return {
            "state": to,
            "state_at": self.clock(),
            "exclusion": exclusion,
            "lease_owner": None,
            "lease_token": None,
            "lease_until": None,
            "retry_at": 0.0,
        }

    def move_all(
        self, c: Connection, rows: Sequence[Any], to: TurnState, exclusion: Exclusion | None = None, **columns: Any
    ) -> None:
        """`move` of many turns that are in one state: rows with `id`, `state` and `exclusion`."""
        for row in rows:
            self._check_move(row.id, row, to, exclusion)
        values = self._moved(to, exclusion) | columns
        if rows:
            c.execute(_MOVE, [{"which": row.id} | values for row in rows])
        for row in rows:
            self.log(c, "move", row.id, {"from": row.state, "to": to, "reason": exclusion})

    def log(self, c: Connection, kind: str, turn_id: str | None, data: dict[str, Any]) -> None:
        """Put an event into the outbox of records.jsonl; the exporter writes it out later."""
        if self.config.journal.records:
            c.execute(_LOG, {"at": self.clock(), "kind": kind, "turn_id": turn_id, "data": pack_json(data)})

    # -- reading ------------------------------------------------------------------------------------------------

    def get_turn(self, turn_id: str) -> Turn | None:
        """The whole turn with its full messages and ids, or None."""
        with self.reading() as c:
            row = c.execute(select(schema.turns).where(schema.turns.c.id == turn_id)).one_or_none()
            return None if row is None else self.read_turn(c, row)

    def read_turn(self, c: Connection, row: Row[Any]) -> Turn:
        messages, prompt_ids = self.read_context(c, row)
        return Turn(
            id=row.id,
            session_id=row.session_id,
            index=row.idx,
            kind=TurnKind(row.kind),
            state=TurnState(row.state),
            exclusion=Exclusion(row.exclusion) if row.exclusion else None,
            parent_id=row.parent_id,
            version=row.version,
            messages=history_from_chat(messages),
            tools=self.read_tools(c, row),
            answer=from_chat(unpack_json(row.answer)) if row.answer else None,
            finish_reason=FinishReason(row.finish_reason or FinishReason.ERROR),
            prompt_ids=prompt_ids,
            response_ids=unpack_ids(row.response_ids) if row.response_ids else [],
            logprobs=unpack_logprobs(row.logprobs),
            temperature=row.temperature,
            hint_at=row.hint_at,
            bridged=row.bridged,
            created_at=row.created_at,
        )

    def read_context(self, c: Connection, row: Row[Any]) -> tuple[list[dict[str, Any]], list[int]]:
        """The messages of a turn, as they are stored, and its prompt ids, from what each of its ancestors added."""
        ancestors = self._ancestors(c, row, _WHOLE)
        messages: list[dict[str, Any]] = []
        for step in ancestors:
            messages += unpack_json(step.messages)
            messages.append(unpack_json(step.answer))
        return messages + unpack_json(row.messages), self._joined_ids(ancestors, row)

    def read_prompt_ids(self, c: Connection, row: Row[Any]) -> list[int]:
        """The prompt ids of a turn alone."""
        return self._joined_ids(self._ancestors(c, row, _IDS), row)

    @staticmethod
    def _ancestors(c: Connection, row: Row[Any], query: str) -> Sequence[Row[Any]]:
        """The turns that a turn is stored on, the first one first. Raises JournalError where they are gone."""
        if not row.extends_parent:
            return []
        found = c.exec_driver_sql(query, (row.parent_id,)).all()
        if not found or found[0].extends_parent:
            raise JournalError(f"turn {row.id} goes on from a turn that is not there any more")
        return found

    @staticmethod
    def _joined_ids(ancestors: Sequence[Row[Any]], row: Row[Any]) -> list[int]:
        ids: list[int] = []
        for step in ancestors:
            ids += unpack_ids(step.prompt_ids)
            ids += unpack_ids(step.response_ids)
        return ids + unpack_ids(row.prompt_ids)

    def read_tools(self, c: Connection, row: Row[Any]) -> list[dict[str, Any]] | None:
        """The tools of a turn's request."""
        if row.tools_id is None:
            return unpack_json(row.tools) if row.tools else None
        return unpack_json(c.execute(_BLOB, {"which": row.tools_id}).scalar_one())


def migrate(connection: Connection) -> None:
    """Bring the schema up to date on an open connection."""
    config = migrations()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def migrations() -> AlembicConfig:
    config = AlembicConfig()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    return config


def configure_sqlite(engine: Engine, pragmas: tuple[str, ...]) -> None:
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


@contextmanager
def _readable_faults(path: Path) -> Iterator[None]:
    try:
        yield
    except UnknownRevision as e:
        raise JournalError(f"the journal {path} is of a later turnwise; update turnwise") from e
    except DBAPIError as e:
        text = str(e.orig)
        code = (getattr(e.orig, "sqlite_errorcode", None) or 0) & 0xFF  # the rest of it says more exactly what it was
        full = code == sqlite3.SQLITE_FULL or (code in ROOMLESS and _no_room(path))
        kind = JournalFull if full else JournalUnavailable if code in WHOLE else JournalError
        text = "disk is full" if full else text
        for mark, advice in FAULTS.items():
            if mark in text:
                raise kind(f"the journal {path} {advice}") from e
        raise kind(f"the journal {path} failed: {text}") from e


def _no_room(path: Path) -> bool:
    try:
        return shutil.disk_usage(path.parent).free < NO_ROOM
    except OSError:
        return False
