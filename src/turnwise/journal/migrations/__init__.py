"""The schema's versions: each file in `versions` brings a journal from the one before it to its own."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config as AlembicConfig
from sqlalchemy import Connection, inspect

from turnwise.journal.migrations import postgres_0008


def migrate(connection: Connection) -> None:
    """Bring the schema up to date on an open connection."""
    config = migrations()
    config.attributes["connection"] = connection
    if connection.dialect.name == "postgresql" and not inspect(connection).has_table("alembic_version"):
        postgres_0008.make(connection)
        command.stamp(config, postgres_0008.REVISION)
    command.upgrade(config, "head")


def migrations() -> AlembicConfig:
    config = AlembicConfig()
    config.set_main_option("script_location", str(Path(__file__).parent))
    return config
