"""A copy of a home's journal at one moment, with its pictures, in another folder. The original is only read."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import cast

from sqlalchemy import Engine

from turnwise.config import Config
from turnwise.errors import JournalError
from turnwise.journal.dialects import database
from turnwise.pictures.store import PictureStore

PAGES_AT_ONCE = 4096


def copy_journal(config: Config, folder: Path) -> Path:
    """Write the journal's copy into a folder that is there; works beside a running server. Raises JournalError."""
    if config.journal.url:
        raise JournalError("a journal on PostgreSQL cannot be copied yet; a replay needs one in a file (journal.url)")
    target = folder / config.journal_path.name
    if target.exists():
        raise JournalError(f"there is a journal in {folder} already; give a folder that is not there")
    target.touch(mode=0o600)

    def copied(engine: Engine) -> None:
        with closing(sqlite3.connect(target)) as copy, engine.connect() as c:
            source = cast(sqlite3.Connection, c.connection.driver_connection)
            source.backup(copy, pages=PAGES_AT_ONCE)

    try:
        database(config).look(copied)
    except sqlite3.Error as e:
        raise JournalError(f"the journal {config.journal_path} cannot be copied: {e}") from e
    PictureStore(folder).share(PictureStore(config.home))
    return target
