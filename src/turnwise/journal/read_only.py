"""The journal opened for reading alone: it is read as it lies there, never made, migrated or written to.

`doctor`, `status` and the commands that list things use this. A schema of another turnwise is said and not mended: the
next start of a loop does that.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TypeVar

from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, inspect
from sqlalchemy.exc import OperationalError

from turnwise.config import Config
from turnwise.errors import JournalError
from turnwise.journal.dialects import database
from turnwise.journal.journal import Journal
from turnwise.journal.migrations import migrations
from turnwise.journal.store import Store

T = TypeVar("T")


class SchemaAge(StrEnum):
    """Whose a journal's schema is."""

    OURS = "ours"
    EARLIER = "earlier"
    LATER = "later"
    FOREIGN = "foreign"
    NONE = "none yet"

    def advice(self, journal: Journal) -> str:
        """What to do about it, as a sentence."""
        place, shared = journal.store.database.place, journal.store.database.shared
        return {
            SchemaAge.OURS: f"the journal {place} is up to date",
            SchemaAge.EARLIER: f"the journal {place} is of an earlier turnwise; start `turnwise serve` once, "
            "which brings it up to date",
            SchemaAge.LATER: f"the journal {place} is of a later turnwise; update turnwise",
            SchemaAge.FOREIGN: f"{place} is not a turnwise journal; "
            + ("give turnwise a database of its own" if shared else "move the file away or choose another home"),
            SchemaAge.NONE: f"the database {place} is empty; start `turnwise serve` once, which makes the journal",
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

    `read` only looks: it may be called again where the journal changed under it. Raises JournalError where it cannot be
    read.
    """
    place = database(config)

    def opened(engine: Engine) -> T:
        journal = Journal(Store(engine, place, config))
        try:
            return read(journal)
        finally:
            journal.close()

    return place.look(opened)


def exists(config: Config) -> bool:
    """Whether there may be a journal; nothing is opened. Raises JournalError."""
    return database(config).exists()


def schema_age(journal: Journal) -> SchemaAge:
    """Raises JournalError where the file cannot be read as a database."""
    scripts = ScriptDirectory.from_config(migrations())
    with journal.store.reading() as c:
        try:
            found = MigrationContext.configure(c).get_current_revision()
        except OperationalError:  # the table of versions has another shape
            found = None
        empty = found is None and journal.store.database.shared and not inspect(c).get_table_names()
    if found == scripts.get_current_head():
        return SchemaAge.OURS
    if found is None:
        return SchemaAge.NONE if empty else SchemaAge.FOREIGN
    known = {script.revision for script in scripts.walk_revisions()}
    return SchemaAge.EARLIER if found in known else SchemaAge.LATER
