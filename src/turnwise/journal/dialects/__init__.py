"""The databases that a journal may lie in, and all that differs between them."""

from __future__ import annotations

from turnwise.config import Config
from turnwise.journal.dialects.base import Database
from turnwise.journal.dialects.postgres import Postgres
from turnwise.journal.dialects.sqlite import SQLite

__all__ = ["Database", "database"]


def database(config: Config) -> Database:
    """Where the journal of a home lies. Nothing is opened. Raises JournalError."""
    if config.journal.url:
        return Postgres(config.journal.url, config.journal.busy_timeout_s)
    return SQLite(config.journal_path, config.journal.busy_timeout_s)
