"""The schema's versions: each file in `versions` brings a journal from the one before it to its own.

A new journal is made whole, from the schema as it is now. A migration goes forward only, and adds text as
`schema.Text`: PostgreSQL would else compare it by the rules of a language.
"""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config as AlembicConfig
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from turnwise.journal.dialects.sql import make_tables
from turnwise.journal.schema.pictures import metadata  # the whole schema: these tables, and all others
from turnwise.journal.triggers import make_triggers


def migrate(connection: Connection) -> None:
    """Make the journal in an empty database, or bring the schema up to date, on an open connection."""
    config = migrations()
    config.attributes["connection"] = connection
    found = MigrationContext.configure(connection).get_current_revision()
    if found == ScriptDirectory.from_config(config).get_current_head():
        return
    if found is None:
        make_tables(connection, metadata)
        command.stamp(config, "head")
    else:
        command.upgrade(config, "head")
    make_triggers(connection)


def migrations() -> AlembicConfig:
    config = AlembicConfig()
    config.set_main_option("script_location", str(Path(__file__).parent))
    return config
