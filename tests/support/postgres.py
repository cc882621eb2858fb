"""A real PostgreSQL of its own for the tests: in a temporary folder, on a Unix socket, ended by its process id."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from turnwise.bench.journal.own_server import OwnServer, programs
from turnwise.journal.dialects.postgres import TABLES

__all__ = ["Cluster", "cluster", "programs"]


class Cluster(OwnServer):
    """One server; `database` makes a fresh database in it."""

    def __init__(self, bin_folder: Path, folder: Path) -> None:
        super().__init__(bin_folder, folder)
        self._template: str | None = None
        self._spare: list[str] = []

    def database(self) -> str:
        """The address of a database with an empty journal; the first one is migrated, the others are copies of it."""
        if self._spare:
            return self._spare.pop()
        name = f"t{uuid.uuid4().hex}"
        if self._template is None:
            from turnwise.config import load_config
            from turnwise.journal.store import Store

            self.run("CREATE DATABASE empty_journal")
            home = self._folder / "home"
            Store.open(load_config(overrides={"home": home, "journal.url": self.url("empty_journal")})).close()
            self.run("DELETE FROM meta", "empty_journal")
            self._template = "empty_journal"
        self.run(f"CREATE DATABASE {name} TEMPLATE {self._template}")
        return self.url(name)

    def give_back(self, url: str) -> None:
        """Empty a database for the next test: making one takes longer."""
        name = url.partition("@/")[2].partition("?")[0]
        self.run(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
        self.run(f"TRUNCATE {', '.join(TABLES)} RESTART IDENTITY", name)
        self._spare.append(url)


@contextmanager
def cluster(bin_folder: Path) -> Iterator[Cluster]:
    """A running server in a folder that goes with it. Not under pytest's own: a socket's path has to be short."""
    with tempfile.TemporaryDirectory(prefix="pg-", ignore_cleanup_errors=True) as folder:
        one = Cluster(bin_folder, Path(folder))
        one.make()
        one.start()
        try:
            yield one
        finally:
            one.stop()
