"""The store that every part of the journal is given: transactions, clocks, the outbox, and the one place where a turn
changes state.

A transaction that writes has all other writers kept out until it ends, so that what it read still holds when it
writes; how is the database's matter (dialects).
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

from alembic.util import CommandError as UnknownRevision
from sqlalchemy import Connection, Engine, bindparam, insert, select, update
from sqlalchemy.exc import DBAPIError

from turnwise.config import Config
from turnwise.errors import JournalError, JournalFull, JournalUnavailable
from turnwise.journal import schema
from turnwise.journal.clocks import boot_id, end_leases, enter_boot, first_meta, last_turn, lower_boot_turn, meta
from turnwise.journal.dialects import Database, database
from turnwise.journal.group_commit import GroupCommit
from turnwise.journal.migrations import migrate
from turnwise.journal.packing import pack_json
from turnwise.types import REVIVABLE, TRANSITIONS, Exclusion, TurnState

log = logging.getLogger(__name__)

ANY_BOOT = "any"
"""The boot of a journal whose deadlines are of its database's own clock: they mean the same on every machine."""

# Statements of the hot path are made once: building one takes longer than the database takes to run it.
_STATE = select(schema.turns.c.state, schema.turns.c.exclusion).where(schema.turns.c.id == bindparam("which"))
_MOVE = update(schema.turns).where(schema.turns.c.id == bindparam("which"))
_LOG = insert(schema.events).inline()  # nobody asks for the number


class IllegalMove(JournalError):
    """A turn was asked to make a move that the transition table does not have."""


class Store:
    """A connection pool, transactions and state moves.

    `clock` gives Unix seconds, which are only shown. Deadlines are counted in seconds from any start, which are the
    same for all who share the journal: the database knows them (`now`). Tests inject both with `monotonic`, or with one
    `clock`, which then stands for both.
    """

    def __init__(
        self,
        engine: Engine,
        place: Database,
        config: Config,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] | None = None,
    ) -> None:
        self.engine = engine
        self.database = place
        self.config = config
        self.clock = clock
        self._injected = monotonic or (None if clock is time.time else clock)
        self.boot_turn = 0
        """The last turn (its `seq`) of earlier boots."""
        self._boot = ""
        self.id = ""
        """What this journal is called in its records. A copy of it has the same name."""
        self.write_fault: JournalUnavailable | None = None
        """Why the last write failed, where no other would have succeeded; None again from the next one that does."""
        self._to_enter: str | None = None  # the boot, until a write has taken the journal into it
        self._in_thread = threading.local()
        self.writes = GroupCommit(self.transaction, config.journal.busy_timeout_s)

    @classmethod
    def open(
        cls,
        config: Config,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] | None = None,
        boot: str | None = None,
    ) -> Self:
        """Open the journal of `config`, creating or migrating it when needed. Raises JournalError."""
        place = database(config)
        try:
            config.home.mkdir(parents=True, exist_ok=True, mode=0o700)  # for records and weights, wherever rows lie
        except OSError as e:
            raise JournalError(f"the home folder {config.home} cannot be used: {e.strerror or e}; see --home") from e
        engine = place.open_engine()
        try:
            store = cls(engine, place, config, clock, monotonic)
            with store._readable_faults():
                with place.preparing(engine) as connection:
                    migrate(connection)
                store._enter(boot or (ANY_BOOT if place.shared else boot_id()))
        except BaseException:
            engine.dispose()
            raise
        return store

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

    def is_of_this_boot(self, c: Connection) -> bool:
        """Whether deadlines that stand in the journal mean something to this process."""
        return meta(c, "boot") == (ANY_BOOT if self.database.shared else boot_id())

    def end_leases(self) -> None:
        """Take back every lease and every wait. For who knows that no judge and no trainer of this home lives.

        Not where other machines may have some: who died there is waited for until the lease runs out.
        """
        if not self.database.shared:
            with self.transaction() as c:
                end_leases(c, self.now(c))

    def close(self) -> None:
        self.writes.close()
        self.database.let_go()
        self.engine.dispose()

    def hold_for_gateway(self) -> bool:
        """Be the one gateway of this journal until it is closed; False where there is another. Raises JournalError."""
        with self._readable_faults():
            return self.database.hold_for_gateway(self.engine)

    def still_held(self) -> bool:
        """Whether this is the one gateway still. Raises JournalError where that cannot be found out."""
        with self._readable_faults():
            return self.database.still_held(self.engine)

    def has_gateway(self) -> bool:
        """Whether a gateway holds the journal, of this home or another one, as far as the database knows."""
        with self._readable_faults():
            return self.database.has_gateway(self.engine)

    # -- clocks -------------------------------------------------------------------------------------------------

    def now(self, c: Connection) -> float:
        """The seconds that deadlines are counted in."""
        return self.database.now(c) if self._injected is None else self._injected()

    def monotonic(self) -> float:
        """The same without a transaction."""
        if self._injected is not None or not self.database.shared:
            return self.steady()
        with self.reading() as c:
            return self.now(c)

    def steady(self) -> float:
        """Seconds of this machine alone, to tell how long something takes here."""
        return time.monotonic() if self._injected is None else self._injected()

    # -- transactions -------------------------------------------------------------------------------------------

    @contextmanager
    def transaction(self, leasing: bool = False) -> Iterator[Connection]:
        """One atomic write. Raises JournalError with a sentence for a full disk, a read-only folder and the like.

        `leasing` is for one that only takes leases on rows it has locked: it need not wait for others of its kind.
        """
        try:
            with self._readable_faults(), self.engine.begin() as connection:
                self.database.begin_write(connection, leasing and self._to_enter is None)
                if self._to_enter is not None:
                    self.id = first_meta(connection, "id", uuid.uuid4().hex[:12])
                    if meta(connection, "boot") != self._to_enter:
                        enter_boot(connection, self._to_enter, self.now(connection))
                    lower_boot_turn(connection)
                yield connection
        except JournalUnavailable as e:
            self.write_fault = e
            raise
        self._to_enter = self.write_fault = None

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One consistent snapshot; takes no lock, so that a long read never holds up a writer."""
        with self._readable_faults():
            if (shared := getattr(self._in_thread, "snapshot", None)) is not None:
                yield shared
                return
            with self.engine.connect() as connection:
                yield connection.execution_options(**self.database.snapshot)

    @contextmanager
    def one_snapshot(self) -> Iterator[None]:
        """All that this thread reads meanwhile is of one snapshot: taking one costs more than reading a row or two.

        For a few quick look-ups; what is written meanwhile is not seen.
        """
        before = getattr(self._in_thread, "snapshot", None)
        with self.reading() as connection:
            self._in_thread.snapshot = connection
            try:
                yield
            finally:
                self._in_thread.snapshot = before

    @contextmanager
    def _readable_faults(self) -> Iterator[None]:
        try:
            yield
        except UnknownRevision as e:
            raise JournalError(f"the journal {self.database.place} is of a later turnwise; update turnwise") from e
        except DBAPIError as e:
            raise self.database.fault(e) from e

    # -- tidiness -----------------------------------------------------------------------------------------------

    def scrub(self) -> None:
        """Take what was deleted out of where deleted rows wait. Raises JournalError."""
        with self._readable_faults():
            self.database.scrub(self.engine)

    def rewrite(self) -> None:
        """Write the journal anew without what is free in it; all writers wait meanwhile. Raises JournalError."""
        with self._readable_faults():
            self.database.rewrite(self.engine)

    def file_bytes(self) -> int:
        """What the journal takes of the disk. Raises JournalError."""
        with self._readable_faults():
            return self.database.file_bytes(self.engine)

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
        current = _check_move(turn_id, row, to, exclusion)
        c.execute(_MOVE, {"which": turn_id} | self._moved(to, exclusion) | columns)
        self.log(c, "move", turn_id, {"from": current, "to": to, "reason": exclusion})
        return current

    def move_all(
        self, c: Connection, rows: Sequence[Any], to: TurnState, exclusion: Exclusion | None = None, **columns: Any
    ) -> None:
        """`move` of many turns that are in one state: rows with `id`, `state` and `exclusion`."""
        for row in rows:
            _check_move(row.id, row, to, exclusion)
        values = self._moved(to, exclusion) | columns
        if rows:
            c.execute(_MOVE, [{"which": row.id} | values for row in rows])
            self._log(c, "move", {row.id: {"from": row.state, "to": to, "reason": exclusion} for row in rows})

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

    def log(self, c: Connection, kind: str, turn_id: str | None, data: dict[str, Any]) -> None:
        """Put an event into the outbox of records.jsonl; the exporter writes it out later."""
        self._log(c, kind, {turn_id: data})

    def _log(self, c: Connection, kind: str, data: Mapping[str | None, dict[str, Any]]) -> None:
        """The same of several turns."""
        if self.config.journal.records:
            now = self.clock()
            c.execute(_LOG, [{"at": now, "kind": kind, "turn_id": i, "data": pack_json(data[i])} for i in data])


def _check_move(turn_id: str, row: Any, to: TurnState, exclusion: Exclusion | None) -> TurnState:
    current = TurnState(row.state)
    legal = to in TRANSITIONS[current]
    if current is TurnState.EXCLUDED and row.exclusion not in REVIVABLE:
        legal = False
    if not legal or (to is TurnState.EXCLUDED) != (exclusion is not None):
        raise IllegalMove(f"turn {turn_id} cannot go from {current} to {to}")
    return current
