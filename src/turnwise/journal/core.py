"""Opening the journal, transactions, and the one place where a turn changes state.

SQLite in WAL mode with full synchronisation: what a transaction committed survives `kill -9` and a power cut. Every
transaction takes the write lock at its start, so that what it read still holds when it writes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
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
from turnwise.errors import JournalError
from turnwise.journal import schema
from turnwise.journal.group import GroupCommit
from turnwise.journal.schema import pack_json, unpack_ids, unpack_json, unpack_logprobs
from turnwise.types import REVIVABLE, TRANSITIONS, Exclusion, FinishReason, Message, Turn, TurnKind, TurnState

FAULTS = {
    "readonly": "is read-only; give this user write access to the folder or choose another one with --home",
    "disk is full": "cannot be written: the disk is full; free some space, nothing already recorded is lost",
    "unable to open": "cannot be opened; check that the folder exists and is writable",
    "locked": "is locked by another writer for too long; look for a second turnwise on the same home",
    "malformed": "is damaged; move it away and restore a copy",
    "not a database": "is not a turnwise journal; move the file away or choose another home",
}
PRAGMAS = ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON")

# Statements of the hot path are made once: building one takes longer than SQLite takes to run it.
_STATE = select(schema.turns.c.state, schema.turns.c.exclusion).where(schema.turns.c.id == bindparam("which"))
_MOVE = update(schema.turns).where(schema.turns.c.id == bindparam("which"))
_LOG = insert(schema.events)


class IllegalMove(JournalError):
    """A turn was asked to make a move that the transition table does not have."""


class JournalCore:
    """A connection pool, transactions and state moves. `clock` gives Unix seconds and is injected by tests."""

    def __init__(self, engine: Engine, path: Path, config: Config, clock: Callable[[], float] = time.time) -> None:
        self.engine = engine
        self.path = path
        self.config = config
        self.clock = clock
        self.writes = GroupCommit(self.transaction)

    @classmethod
    def open(cls, config: Config, clock: Callable[[], float] = time.time) -> Self:
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
        except Timeout:
            raise JournalError(f"the journal {path} is being migrated by another process; try again") from None
        except OSError as e:
            raise JournalError(f"the home folder {path.parent} cannot be used: {e.strerror or e}; see --home") from e
        return cls(engine, path, config, clock)

    def close(self) -> None:
        self.writes.close()
        self.engine.dispose()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """One atomic write. Raises JournalError with a sentence for a full disk, a read-only folder and the like."""
        with _readable_faults(self.path), self.engine.begin() as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One consistent snapshot; takes no lock, so that a long read never holds up a writer."""
        with _readable_faults(self.path), self.engine.connect() as connection:
            yield connection.execution_options(read_only=True)

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
        current = TurnState(row.state)
        legal = to in TRANSITIONS[current]
        if current is TurnState.EXCLUDED and row.exclusion not in REVIVABLE:
            legal = False
        if not legal or (to is TurnState.EXCLUDED) != (exclusion is not None):
            raise IllegalMove(f"turn {turn_id} cannot go from {current} to {to}")
        values = {
            "state": to,
            "state_at": self.clock(),
            "exclusion": exclusion,
            "lease_owner": None,
            "lease_token": None,
            "lease_until": None,
        } | columns
        c.execute(_MOVE, {"which": turn_id} | values)
        self.log(c, "move", turn_id, {"from": current, "to": to, "reason": exclusion})
        return current

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
            messages=messages,
            tools=unpack_json(row.tools) if row.tools else None,
            answer=unpack_json(row.answer) if row.answer else {},
            finish_reason=FinishReason(row.finish_reason or FinishReason.ERROR),
            prompt_ids=prompt_ids,
            response_ids=unpack_ids(row.response_ids) if row.response_ids else [],
            logprobs=unpack_logprobs(row.logprobs),
            temperature=row.temperature,
            hint_at=row.hint_at,
            bridged=row.bridged,
            created_at=row.created_at,
        )

    def read_context(self, c: Connection, row: Row[Any]) -> tuple[list[Message], list[int]]:
        """The messages and prompt ids of a turn, put together from what each of its ancestors added."""
        chain = [row]
        while chain[-1].extends_parent:
            parent = c.execute(select(schema.turns).where(schema.turns.c.id == chain[-1].parent_id)).one()
            chain.append(parent)
        messages: list[Message] = []
        ids: list[int] = []
        for step in reversed(chain):
            messages += unpack_json(step.messages)
            ids += unpack_ids(step.prompt_ids)
            if step is not row:
                messages.append(unpack_json(step.answer))
                ids += unpack_ids(step.response_ids)
        return messages, ids


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
        for mark, advice in FAULTS.items():
            if mark in text:
                raise JournalError(f"the journal {path} {advice}") from e
        raise JournalError(f"the journal {path} failed: {text}") from e
