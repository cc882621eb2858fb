"""The journal opened for reading alone: it is read as it lies there, never made, migrated or written to.

`doctor`, `status` and the commands that list things use this. A schema of another turnwise is said and not mended: the
next start of a loop does that.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from urllib.parse import quote

from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import NullPool, create_engine
from sqlalchemy.exc import OperationalError

from turnwise.config import Config
from turnwise.errors import JournalError
from turnwise.journal.core import configure_sqlite, migrations
from turnwise.journal.journal import Journal


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


@contextmanager
def reading_journal(config: Config) -> Iterator[Journal]:
    """The journal for reading alone. Raises JournalError where the schema is not ours, the file no journal or damaged.

    Where it does not exist it is not made.
    """
    with read_only(config) as journal:
        age = schema_age(journal)
        if age is not SchemaAge.OURS:
            raise JournalError(age.advice(journal))
        yield journal


@contextmanager
def read_only(config: Config) -> Iterator[Journal]:
    """The journal for reading alone, whatever its schema. Its calls raise JournalError where the file is damaged."""
    path = config.journal_path
    # Without a write-ahead log no other process has the journal open, and SQLite needs no files of its own beside it.
    alone = "" if path.with_name(f"{path.name}-wal").exists() else "&immutable=1"
    url = f"sqlite:///file:{quote(str(path))}?mode=ro{alone}&uri=true"
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
