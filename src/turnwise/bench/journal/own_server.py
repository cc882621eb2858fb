"""A PostgreSQL of one's own: in a temporary folder, on a Unix socket, ended by its process id. Needs its package."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from turnwise.errors import TurnwiseError

FOLDERS = ("/usr/lib/postgresql/*/bin", "/usr/local/opt/postgresql*/bin", "/opt/homebrew/opt/postgresql*/bin")
PORT = 5432
START_LIMIT_S = 60.0


def programs() -> Path | None:
    """The folder of `postgres` and `initdb`, the newest one; Debian keeps them off the PATH."""
    found = shutil.which("postgres")
    there = [Path(found).parent] if found else []
    for pattern in FOLDERS:
        there += sorted(Path("/").glob(pattern.lstrip("/")), key=lambda path: path.as_posix(), reverse=True)
    return next((path for path in there if (path / "initdb").exists() and (path / "postgres").exists()), None)


def _somebody() -> pwd.struct_passwd | None:
    """Whom to run as where it is not oneself: PostgreSQL refuses root."""
    if os.getuid() != 0:
        return None
    names = {user.pw_name: user for user in pwd.getpwall()}
    return names.get("postgres") or names["nobody"]


class OwnServer:
    """One server in a folder of its own."""

    def __init__(self, bin_folder: Path, folder: Path) -> None:
        self._bin = bin_folder
        self._folder = folder
        user = _somebody()
        self._ids = (None, None, None) if user is None else (user.pw_uid, user.pw_gid, [])
        self._process: subprocess.Popen[bytes] | None = None

    def make(self) -> None:
        self._folder.chmod(0o755)
        user, group, more = self._ids
        if user is not None and group is not None:
            os.chown(self._folder, user, group)
        command = [str(self._bin / "initdb"), "-D", str(self.data), "-U", "turnwise", "-A", "trust", "-E", "UTF8"]
        subprocess.run(
            [*command, "--no-sync"], check=True, capture_output=True, cwd="/", timeout=120,
            user=user, group=group, extra_groups=more,
        )  # fmt: skip

    @property
    def data(self) -> Path:
        return self._folder / "data"

    def start(self) -> None:
        """Start it, and wait until it takes connections. Raises TurnwiseError with what it said."""
        settings = ["listen_addresses=", f"unix_socket_directories={self._folder}", "max_connections=200"]
        command = [str(self._bin / "postgres"), "-D", str(self.data), "-p", str(PORT)]
        command += [part for setting in settings for part in ("-c", setting)]
        log = self._folder / "log"
        with log.open("ab") as said:
            user, group, more = self._ids
            process = subprocess.Popen(
                command, stdout=said, stderr=said, cwd="/", user=user, group=group, extra_groups=more
            )
        self._process = process
        deadline = time.monotonic() + START_LIMIT_S
        while not self._answers():
            if process.poll() is not None or time.monotonic() > deadline:
                raise TurnwiseError(f"PostgreSQL did not start: {log.read_text()[-1500:]}")
            time.sleep(0.05)

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


@contextmanager
def own_server() -> Iterator[OwnServer]:
    """A running server in a folder that goes with it: a short one, for the sake of its socket. Raises TurnwiseError."""
    found = programs()
    if found is None:
        raise TurnwiseError("there is no PostgreSQL here; install it (Debian: postgresql), or give the --url of one")
    with tempfile.TemporaryDirectory(prefix="pg-", ignore_cleanup_errors=True) as folder:
        server = OwnServer(found, Path(folder))
        server.make()
        server.start()
        try:
            yield server
        finally:
            server.stop()
