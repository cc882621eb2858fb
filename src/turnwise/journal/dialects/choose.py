"""Which database a configuration means."""

from __future__ import annotations

from turnwise.config import Config
from turnwise.journal.dialects.base import Database
from turnwise.journal.dialects.postgres import Postgres
from turnwise.journal.dialects.sqlite import SQLite


def database(config: Config) -> Database:
    """Where the journal of a home lies. Nothing is opened. Raises JournalError."""
    if config.journal.url:
        return Postgres(config.journal.url, config.journal.busy_timeout_s)
    return SQLite(config.journal_path, config.journal.busy_timeout_s)
