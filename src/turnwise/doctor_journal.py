"""What `turnwise doctor` says of the journal: it is read as it lies there, never migrated, locked or written to.

An earlier schema is therefore a finding and not mended here: the next start of a loop does that.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from alembic.config import Config as AlembicConfig
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import NullPool, create_engine
from sqlalchemy.exc import OperationalError

from turnwise import journal as journal_package
from turnwise.config import Config
from turnwise.errors import JournalError
from turnwise.journal import Journal

Said = tuple[str, Literal["ok", "note", "fault"], str]
"""A check, its level, and what was found."""


def examine_journal(config: Config) -> Iterator[Said]:
    """The journal's state, what its loops say of themselves, and the published versions whose files are gone."""
    path = config.journal_path
    if not path.exists():
        yield "journal", "ok", "none yet"
        return
    try:
        with closing(open_read_only(config)) as journal:
            if stale := _schema_fault(journal):
                yield "journal", *stale
                return
            with journal.reading() as c:
                damage = c.exec_driver_sql("PRAGMA quick_check(1)").scalar_one()
            if damage != "ok":
                yield "journal", "fault", f"the journal {path} is damaged ({damage}); move it away and restore a copy"
                return
            status, versions = journal.status(), journal.list_versions()
    except JournalError as e:
        yield "journal", "fault", str(e)
        return
    turns, serving = sum(status["turns"].values()), status["version"]["number"]
    yield "journal", "ok", f"{turns} turns, version {serving} serves"
    if path.stat().st_mode & 0o077:
        yield "journal", "note", f"others can read {path}; run: chmod 600 {path}"
    for name, loop in status["loops"].items():
        for said in loop_errors(loop):
            yield name, "fault", f"says: {said}"
    for version in versions:
        folder = config.home / version.path
        for name in ("adapter_model.safetensors", "adapter_config.json"):
            if not (folder / name).is_file():
                yield "versions", "fault", f"version {version.number} has lost {folder / name}; restore it"


def loop_errors(loop: dict[str, object]) -> list[str]:
    """What is wrong by a loop's own account: its `error`, and the gateway's with a version it cannot serve."""
    return [str(loop[key]) for key in ("error", "version_error") if loop.get(key)]


def open_read_only(config: Config) -> Journal:
    """The journal for reading alone. Its calls raise JournalError where the file is no journal or damaged."""
    path = config.journal_path
    # Without a write-ahead log no other process has the journal open, and SQLite needs no files of its own beside it.
    alone = "" if path.with_name(f"{path.name}-wal").exists() else "&immutable=1"
    url = f"sqlite:///file:{quote(str(path))}?mode=ro{alone}&uri=true"
    options = {"timeout": config.journal.busy_timeout_s, "check_same_thread": False}
    return Journal(create_engine(url, poolclass=NullPool, connect_args=options), path, config)


def _schema_fault(journal: Journal) -> tuple[Literal["note", "fault"], str] | None:
    """What is to be said of a schema that is not ours, or None."""
    settings = AlembicConfig()
    settings.set_main_option("script_location", str(Path(journal_package.__file__).parent / "migrations"))
    scripts = ScriptDirectory.from_config(settings)
    with journal.reading() as c:
        try:
            found = MigrationContext.configure(c).get_current_revision()
        except OperationalError:  # the table of versions has another shape
            found = None
    if found == scripts.get_current_head():
        return None
    if found is None:
        return "fault", f"{journal.path} is not a turnwise journal; move the file away or choose another home"
    if found in {script.revision for script in scripts.walk_revisions()}:
        return "note", f"the journal {journal.path} is of an earlier turnwise; the next start brings it up to date"
    return "fault", f"the journal {journal.path} is of a later turnwise ({found}); update turnwise"
