"""The Unix socket that the local engine is asked over: only this user gets at it, and it is there before the engine is.

The supervisor makes it and keeps it open; each engine it starts inherits it. Requests that come while no engine runs
wait in its queue.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from turnwise.errors import ConfigError

NAME = "engine.sock"
ELSEWHERE = "engine.elsewhere"
"""A file that notes the folder outside of the home with a socket, for the next start to clear away."""
PREFIX = "turnwise-"
LONGEST = 100
"""Bytes of a path that every system takes for a socket: 103 on macOS, 107 on Linux."""
BACKLOG = 1024


@contextmanager
def private_socket(home: Path) -> Iterator[socket.socket]:
    """A listening socket in `home`/run, or in a new folder of the system's where that path is too long for one.

    Only one process at a time may do this for a home: the supervisor holds its lock. What a dead one left is replaced.
    Raises ConfigError.
    """
    run = _own_folder(home / "run")
    _clear_left_over(run)
    path, made = run / NAME, None
    if len(os.fsencode(path)) > LONGEST:
        path, made = _elsewhere(run)
    sock, bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM), False
    try:
        _free(path)
        try:
            sock.bind(str(path))
        except OSError as e:
            if made is not None:
                raise ConfigError(f"cannot make the engine's socket {path}: {e.strerror or e}") from e
            path, made = _elsewhere(run)  # some file systems hold no sockets
            sock.bind(str(path))
        bound = True
        path.chmod(0o600)  # nobody could get at it before: its folder is ours alone
        sock.listen(BACKLOG)
        sock.set_inheritable(True)
        yield sock
    finally:
        sock.close()
        with contextlib.suppress(OSError):
            if bound:
                path.unlink(missing_ok=True)
            if made is not None:
                made.rmdir()
                (run / ELSEWHERE).unlink(missing_ok=True)


def _own_folder(folder: Path) -> Path:
    """The folder, made where it is missing, with mode 0700. Raises ConfigError where it is not ours."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise ConfigError(f"{folder} is not a folder of yours; move it away, the engine's socket is made in it")
        folder.chmod(0o700)
    except OSError as e:
        raise ConfigError(f"the folder {folder} for the engine's socket cannot be used: {e.strerror or e}") from e
    return folder


def _free(path: Path) -> None:
    """Take away the socket of a supervisor that died. Anything else under its name is not ours to delete."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise ConfigError(f"{path} is in the way of the engine's socket; move it away")
        path.unlink()  # its folder is ours


def _elsewhere(run: Path) -> tuple[Path, Path]:
    """A socket's path in a new folder of mode 0700 with a short name, and that folder."""
    places = dict.fromkeys((os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir(), tempfile.gettempdir(), "/tmp"))
    for place in places:
        if len(os.fsencode(place)) + len(f"/{PREFIX}01234567/{NAME}") > LONGEST:
            continue
        with contextlib.suppress(OSError):
            made = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
            (run / ELSEWHERE).write_text(str(made), encoding="utf-8")
            return made / NAME, made
    raise ConfigError(
        f"no folder has a path that is short enough for the engine's socket (tried {', '.join(places)}); "
        "set TMPDIR to one, or choose a shorter --home"
    )


def _clear_left_over(run: Path) -> None:
    """Take away what a supervisor that was killed has left outside of the home."""
    note = run / ELSEWHERE
    try:
        left = Path(note.read_text(encoding="utf-8"))
        found = left.lstat()
        if left.name.startswith(PREFIX) and stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid():
            (left / NAME).unlink(missing_ok=True)
            left.rmdir()
    except (OSError, ValueError):
        pass  # none was left, or it is gone or in use: nothing depends on it
    with contextlib.suppress(OSError):
        note.unlink(missing_ok=True)
