"""What the journal asks of its database beside SQL: how it is opened, locked, told apart when it fails, and tidied."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from turnwise.errors import JournalError

T = TypeVar("T")


class Database(Protocol):
    """Where a journal lies. Tables, queries and all else that is SQL is the same on each of them.

    What has a body here is the answer of a database that has nothing to say to it.
    """

    place: str
    """What it is called in errors and logs: a path, or an address without its password."""
    shared: bool
    """Whether loops on several machines may write to it: then deadlines are of its own clock, which has no boots."""
    snapshot: dict[str, Any]
    """Execution options of a connection that only reads: what it reads is of one moment."""
    keeps_order: bool
    """Whether rows that are joined to a sorted subquery come in its order, and would be sorted anew if told to."""
    frees_at_once: bool
    """Whether `used_bytes` falls with a deletion, in its own transaction."""

    def exists(self) -> bool:
        """Whether there may be a journal; nothing is made."""
        return True

    def open_engine(self) -> Engine:
        """A pool of connections that read and write. Nothing is asked of the database yet. Raises JournalError."""
        ...

    def preparing(self, engine: Engine) -> AbstractContextManager[Connection]:
        """One transaction in which the schema is made or migrated, by one process at a time."""
        ...

    def look(self, read: Callable[[Engine], T]) -> T:
        """What `read` finds with an engine that cannot write. It may be called several times. Raises JournalError."""
        ...

    def fault(self, error: DBAPIError) -> JournalError:
        """The error as one that a person can use; JournalUnavailable where another write would meet the same."""
        ...

    def begin_write(self, c: Connection, leasing: bool) -> None:
        """Keep all other writers out of this transaction, which has begun; with `leasing` all but those that lease."""

    def now(self, c: Connection) -> float:
        """The seconds that deadlines are counted in."""
        ...

    def hold_for_gateway(self, engine: Engine) -> bool:
        """Take the place of the one gateway of this journal until the engine is disposed; False where it is taken."""
        return True  # the lock in the home keeps a second one out

    def has_gateway(self, engine: Engine) -> bool:
        """Whether that place is taken, as far as the database knows."""
        return False

    def still_held(self, engine: Engine) -> bool:
        """Whether the place is ours still. It is taken again where the connection was lost and nobody else has it."""
        return True

    def let_go(self) -> None:
        """Give back what `hold_for_gateway` took."""

    def troubles(self, c: Connection) -> list[str]:
        """Why turnwise could not work with this database, as the ends of sentences about it."""
        return []

    def used_bytes(self, c: Connection) -> int:
        """What the journal's rows and indexes take, without room that is free to be used again."""
        ...

    def file_bytes(self, engine: Engine) -> int:
        """What the journal takes of the disk."""
        ...

    def scrub(self, engine: Engine) -> None:
        """Take what was deleted out of where deleted rows wait, as far as it goes beside writers."""
        ...

    def rewrite(self, engine: Engine) -> None:
        """Write the journal anew without what is free in it. All writers wait meanwhile."""
        ...

    def damage(self, c: Connection, whole: bool = False) -> list[str]:
        """What is damaged in the database's own structures; `whole` looks at everything."""
        return []
