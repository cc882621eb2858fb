"""PostgreSQL: a server that loops on several machines may share.

One advisory lock is what SQLite's write lock is: a transaction that writes takes it first, so that what it read still
holds when it writes (docs/decisions/0011). Judges that lease turns share it with each other alone, and pass over each
other's rows by SKIP LOCKED. Deadlines are counted by the server's clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, event
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.pool import QueuePool

from turnwise.config.addresses import parsed, without_password
from turnwise.errors import JournalError, JournalFull, JournalUnavailable
from turnwise.journal.dialects.base import Database

T = TypeVar("T")

WRITERS = 0x7475726E77697365
"""The advisory lock of who writes: "turnwise" in ASCII. The next number is the gateway's."""
GATEWAY = WRITERS + 1
OLDEST = 130000
"""The oldest server that is taken, as `server_version_num` says it."""
CONNECT_S = 5
SEEN_ALIVE = {"tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3"}
"""How the server finds out that a machine is gone, with its locks: within half a minute."""
ABANDONED_S = 60
"""A transaction in which nothing is asked for so long is ended by the server: its machine may be gone with the lock."""

UNAVAILABLE = ("08", "25006", "28", "3D000", "40", "53", "55P03", "57", "58", "F0", "XX")
"""Beginnings of the codes of faults that another write would meet as well, or that end by themselves."""
ADVICE = {
    "08": "cannot be reached; check that the server runs and that journal.url is right",
    "25006": "is read-only: its server is a standby or was made so; give journal.url the primary server",
    "28": "refuses the user of journal.url; check its name and password (PGPASSWORD or ~/.pgpass)",
    "3D000": "does not exist; make it with `createdb`",
    "42501": "may not be written by the user of journal.url; make that user the owner of the database",
    "42P07": "has tables of another program; give turnwise a database of its own",
    "53100": "cannot be written: the server's disk is full; free some space, nothing already recorded is lost",
    "53300": "has too many connections; raise max_connections on the server",
    "55P03": "is locked by another writer for too long; look for a loop that hangs",
    "57P": "is on a server that starts or stops; wait until it takes connections again",
}
REFUSALS = {
    "53300": ("too many clients", "too many connections", "connection slots"),
    "57P": ("starting up", "shutting down", "recovery mode", "not currently accepting"),
    "42501": ("permission denied",),
    "28": ("authentication failed", "no password supplied", "pg_hba.conf", 'role "'),
    "3D000": ('" does not exist',),
}
"""Words of a server that refuses a connection, by the code that it does so with; the first that fit count."""
LONGEST_WORDS = 200
TABLES = (
    *("turns", "sessions", "verdicts", "samples", "batches", "versions", "blobs", "counts", "provenance"),
    *("meta", "events", "review", "loops", "skill_versions", "skill_sources", "skill_uses", "libraries", "failures"),
    *("replays", "compressions", "task_groups", "trajectories", "turn_pictures"),
)
_TURN_BYTES = " + ".join(
    f"coalesce(octet_length({name}), 0)"
    for name in ("messages", "tools", "params", "answer", "prompt_ids", "response_ids", "logprobs", "next_state")
)
USED = f"""
SELECT (SELECT coalesce(sum(1200 + {_TURN_BYTES}), 0) FROM turns)
     + (SELECT coalesce(sum(30 + octet_length(data) + coalesce(octet_length(turn_id), 0)), 0) FROM events)
"""


class Postgres(Database):
    """The journal in the database at `url`. `patience_s` is the longest wait for another writer."""

    shared = True
    keeps_order = False
    frees_at_once = False

    def __init__(self, url: str, patience_s: float) -> None:
        try:
            self._url = parsed(url).set(drivername="postgresql+psycopg")
            self.place = without_password(url)
        except ValueError as e:
            raise JournalError(f"journal.url {e}") from None
        self.snapshot: dict[str, Any] = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        self._patience_s = patience_s
        self._gateway: Connection | None = None

    # -- opening ------------------------------------------------------------------------------------------------

    def open_engine(self) -> Engine:
        """A pool that tries a connection before it gives it out: the server may have been away."""
        engine = _engine(self._url, poolclass=QueuePool, pool_pre_ping=True, max_overflow=20)
        _configure(engine, {"lock_timeout": f"{max(1, round(self._patience_s * 1000))}ms"})
        return engine

    @contextmanager
    def preparing(self, engine: Engine) -> Iterator[Connection]:
        with engine.begin() as connection:
            self.begin_write(connection, leasing=False)
            yield connection

    def look(self, read: Callable[[Engine], T]) -> T:
        engine = _engine(self._url, poolclass=NullPool)
        _configure(engine, {"default_transaction_read_only": "on"})
        try:
            return read(engine)
        finally:
            engine.dispose()

    # -- transactions -------------------------------------------------------------------------------------------

    def begin_write(self, c: Connection, leasing: bool) -> None:
        c.exec_driver_sql(f"SELECT pg_advisory_xact_lock{'_shared' if leasing else ''}({WRITERS})")

    def now(self, c: Connection) -> float:
        return c.exec_driver_sql("SELECT extract(epoch FROM clock_timestamp())::float8").scalar_one()

    def hold_for_gateway(self, engine: Engine) -> bool:
        """The lock is the connection's: it ends with this process, and with the server."""
        connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        if not connection.exec_driver_sql(f"SELECT pg_try_advisory_lock({GATEWAY})").scalar_one():
            connection.close()
            return False
        connection.detach()  # the pool gives it to nobody else
        self._gateway = connection
        return True

    def has_gateway(self, engine: Engine) -> bool:
        with engine.connect() as c:  # the lock ends with the transaction
            return not c.exec_driver_sql(f"SELECT pg_try_advisory_xact_lock({GATEWAY})").scalar_one()

    def still_held(self, engine: Engine) -> bool:
        if self._gateway is not None:
            try:
                self._gateway.exec_driver_sql("SELECT 1")
                return True
            except DBAPIError:
                self._gateway.invalidate()
                self.let_go()
        return self.hold_for_gateway(engine)

    def let_go(self) -> None:
        if self._gateway is not None:
            self._gateway.close()
            self._gateway = None

    def fault(self, error: DBAPIError) -> JournalError:
        code = _code(error)
        full = code == "53100"
        kind = JournalFull if full else JournalUnavailable if code.startswith(UNAVAILABLE) else JournalError
        words = next(iter(str(error.orig).strip().splitlines()), "")[:LONGEST_WORDS] or type(error.orig).__name__
        for mark, advice in ADVICE.items():
            if code.startswith(mark):
                own = getattr(error.orig, "sqlstate", None) is None  # a guess from words: they are given as well
                return kind(f"the journal {self.place} {advice}" + (f" ({words})" if own else ""))
        return kind(f"the journal {self.place} failed: {words}")

    def troubles(self, c: Connection) -> list[str]:
        found: list[str] = []
        ask = c.exec_driver_sql
        version = int(ask("SELECT current_setting('server_version_num')").scalar_one())
        if version < OLDEST:
            found.append(
                f"its server is of version {version // 10000}; turnwise needs {OLDEST // 10000} or a later one"
            )
        if ask("SELECT pg_is_in_recovery()").scalar_one():
            found.append("its server is a standby, which takes no writes; give journal.url the primary server")
        denied = ask("SELECT to_regclass('turns') IS NULL OR has_table_privilege('turns', 'INSERT, UPDATE, DELETE')")
        may_make = ask("SELECT coalesce(has_schema_privilege(current_schema(), 'CREATE'), false)")
        if not denied.scalar_one() or not may_make.scalar_one():
            found.append(f"it {ADVICE['42501']}")
        return found

    # -- size and tidiness --------------------------------------------------------------------------------------

    def used_bytes(self, c: Connection) -> int:
        """What the texts and ids take, worked out: the tables themselves do not shrink when rows go."""
        return int(c.exec_driver_sql(USED).scalar_one())

    def file_bytes(self, engine: Engine) -> int:
        with engine.connect() as c:
            sizes = (c.exec_driver_sql(f"SELECT pg_total_relation_size('{name}')").scalar_one() for name in TABLES)
            return sum(sizes)

    def scrub(self, engine: Engine) -> None:
        """Dead rows are taken out of their pages. What backups and the server's own log hold is its administrator's."""
        _outside_of_transactions(engine, f"VACUUM {', '.join(TABLES)}")

    def rewrite(self, engine: Engine) -> None:
        _outside_of_transactions(engine, f"VACUUM FULL {', '.join(TABLES)}")


def _engine(url: URL, **pool: Any) -> Engine:
    connecting = {
        **{"connect_timeout": CONNECT_S, "application_name": "turnwise", "tcp_user_timeout": 20_000},
        **{"keepalives": 1, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3},
    }
    try:
        return create_engine(url, isolation_level="READ COMMITTED", connect_args=connecting, **pool)
    except ModuleNotFoundError as e:
        raise JournalError(f"journal.url needs {e.name}; install it with: pip install 'turnwise[postgres]'") from None


def _configure(engine: Engine, settings: dict[str, str]) -> None:
    """What every session asks of the server, whatever its own defaults are: above all that a commit is on its disk."""
    settings = settings | {"idle_in_transaction_session_timeout": f"{ABANDONED_S}s"} | SEEN_ALIVE
    asked = ", ".join(f"set_config('{name}', '{value}', false)" for name, value in settings.items())
    durable = "set_config('synchronous_commit', 'on', false)"
    once_off = f"CASE WHEN current_setting('synchronous_commit') IN ('off', 'local') THEN {durable} END"

    @event.listens_for(engine, "connect")
    def _on_connect(dbapi_connection: Any, _record: Any) -> None:
        dbapi_connection.execute(f"SELECT {asked}, {once_off}")
        dbapi_connection.commit()


def _code(error: DBAPIError) -> str:
    """The server's code; what it says as it refuses a connection comes without one, and is told by its words."""
    code = getattr(error.orig, "sqlstate", None)
    if code:
        return code
    if not error.connection_invalidated and not isinstance(error, (OperationalError, InterfaceError)):
        return ""
    text = str(error.orig)
    return next((code for code, words in REFUSALS.items() if any(word in text for word in words)), "08")


def _outside_of_transactions(engine: Engine, statement: str) -> None:
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(statement)
