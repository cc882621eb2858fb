"""A real PostgreSQL of its own for the tests: in a temporary folder, on a Unix socket, ended by its process id."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.servers import wait_until
from turnwise.journal.dialects.postgres import TABLES

FOLDERS = ("/usr/lib/postgresql/*/bin", "/usr/local/opt/postgresql*/bin", "/opt/homebrew/opt/postgresql*/bin")
PORT = 5432


def programs() -> Path | None:
    """The folder of `postgres` and `initdb`, the newest one; Debian keeps them off the PATH."""
    found = shutil.which("postgres")
    there = [Path(found).parent] if found else []
    for pattern in FOLDERS:
        there += sorted(Path("/").glob(pattern.lstrip("/")), key=lambda path: path.as_posix(), reverse=True)
    return next((path for path in there if (path / "initdb").exists() and (path / "postgres").exists()), None)


def _somebody() -> dict[str, Any]:
    """Whom to run as: PostgreSQL refuses root."""
    if os.getuid() != 0:
        return {}
    names = {user.pw_name: user for user in pwd.getpwall()}
    user = names.get("postgres") or names["nobody"]
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


class Cluster:
    """One server; `database` makes a fresh database in it."""

    def __init__(self, bin_folder: Path, folder: Path) -> None:
        self._bin = bin_folder
        self._folder = folder
        self._as = _somebody()
        self._process: subprocess.Popen[bytes] | None = None
        self._template: str | None = None
        self._spare: list[str] = []

    def make(self) -> None:
        self._folder.chmod(0o755)
        if "user" in self._as:
            os.chown(self._folder, self._as["user"], self._as["group"])
        command = [str(self._bin / "initdb"), "-D", str(self.data), "-U", "turnwise", "-A", "trust", "-E", "UTF8"]
        subprocess.run([*command, "--no-sync"], check=True, capture_output=True, cwd="/", timeout=120, **self._as)

    @property
    def data(self) -> Path:
        return self._folder / "data"

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        settings = ["listen_addresses=", f"unix_socket_directories={self._folder}", "max_connections=200"]
        command = [str(self._bin / "postgres"), "-D", str(self.data), "-p", str(PORT)]
        command += [part for setting in settings for part in ("-c", setting)]
        with (self._folder / "log").open("ab") as said:
            self._process = subprocess.Popen(command, stdout=said, stderr=said, cwd="/", **self._as)
        wait_until(self._answers, 60)

    def stop(self, kill: bool = False) -> None:
        """End it: at once, or by `kill` as a crash would."""
        process, self._process = self._process, None
        if process is not None:
            if kill:
                process.kill()
            else:
                process.send_signal(3)  # SIGQUIT: at once, nothing is kept of it
            process.wait(60)

    def _answers(self) -> bool:
        import psycopg

        assert self._process is not None and self._process.poll() is None, (self._folder / "log").read_text()
        try:
            self.run("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def run(self, statement: str, database: str = "postgres") -> None:
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(statement)  # type: ignore[arg-type]  # our own words

    def url(self, database: str) -> str:
        return f"postgresql://turnwise@/{database}?host={self._folder}&port={PORT}"

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
