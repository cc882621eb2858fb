"""The journal opened for reading alone: it is read as it lies there, never made, migrated or written to.

`doctor`, `status` and the commands that list things use this. A schema of another turnwise is said and not mended: the
next start of a loop does that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import NullPool, create_engine
from sqlalchemy.exc import OperationalError

from turnwise.config import Config
from turnwise.errors import JournalError
from turnwise.journal.core import configure_sqlite, migrations
from turnwise.journal.journal import Journal

T = TypeVar("T")
MOST_TRIES = 5
"""Looks at a journal that another process begins to use, or lets go of, meanwhile."""


class SchemaAge(StrEnum):
    """Whose a journal's schema is."""

    OURS = "ours"
    EARLIER = "earlier"
    LATER = "later"
    FOREIGN = "foreign"

    def advice(self, journal: Journal) -> str:
        """What to do about it, as a sentence."""
        return {
            SchemaAge.OURS: f"the journal {journal.path} is up to date",
            SchemaAge.EARLIER: f"the journal {journal.path} is of an earlier turnwise; start `turnwise serve` once, "
            "which brings it up to date",
            SchemaAge.LATER: f"the journal {journal.path} is of a later turnwise; update turnwise",
            SchemaAge.FOREIGN: f"{journal.path} is not a turnwise journal; move the file away or choose another home",
        }[self]


def read_ours(config: Config, read: Callable[[Journal], T]) -> T:
    """`read_only`; raises JournalError also where the schema is not ours."""

    def checked(journal: Journal) -> T:
        age = schema_age(journal)
        if age is not SchemaAge.OURS:
            raise JournalError(age.advice(journal))
        return read(journal)

    return read_only(config, checked)


def read_only(config: Config, read: Callable[[Journal], T]) -> T:
    """What `read` finds in the journal, whatever its schema. Where the journal does not exist it is not made.

    `read` only looks: it is called again where the file changed under it. Raises JournalError where the file is no
    journal or damaged.
    """
    path = config.journal_path
    for tries_left in reversed(range(MOST_TRIES)):
        # Without a write-ahead log no other process has the journal open, and SQLite needs no files of its own beside
        # it: it takes the file for one that does not change. A server that starts meanwhile makes that untrue.
        before = _state(path)
        alone = not before[0]
        try:
            with _opened(config, alone) as journal:
                found = read(journal)
        except JournalError:
            if not alone or not tries_left or _state(path) == before:
                raise
        else:
            if not alone or _state(path) == before:
                return found
    raise JournalError(f"the journal {path} changed all the time it was read; try again")


def _state(path: Path) -> tuple[bool, int, int]:
    """Whether a write-ahead log is there, and what changes when the file does."""
    logged = path.with_name(f"{path.name}-wal").exists()
    try:
        stat = path.stat()
    except FileNotFoundError:
        return logged, 0, 0
    return logged, stat.st_mtime_ns, stat.st_size


@contextmanager
def _opened(config: Config, alone: bool) -> Iterator[Journal]:
    path = config.journal_path
    url = f"sqlite:///file:{quote(str(path))}?mode=ro{'&immutable=1' if alone else ''}&uri=true"
    options = {"timeout": config.journal.busy_timeout_s, "check_same_thread": False}
    engine = create_engine(url, poolclass=NullPool, connect_args=options)
    configure_sqlite(engine, pragmas=())
    journal = Journal(engine, path, config)
    try:
        yield journal
    finally:
        journal.close()


def schema_age(journal: Journal) -> SchemaAge:
    """Raises JournalError where the file cannot be read as a database."""
    scripts = ScriptDirectory.from_config(migrations())
    with journal.reading() as c:
        try:
            found = MigrationContext.configure(c).get_current_revision()
        except OperationalError:  # the table of versions has another shape
            found = None
    if found == scripts.get_current_head():
        return SchemaAge.OURS
    if found is None:
        return SchemaAge.FOREIGN
    known = {script.revision for script in scripts.walk_revisions()}
    return SchemaAge.EARLIER if found in known else SchemaAge.LATER
