"""Starts the keeper of a site, asks it for instances, and stops it: by a Unix socket in a folder that is ours alone.

No process is looked for by its name or number: who answers at the socket is the keeper of that folder, and where nobody
does the site is not running.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from turnwise.config import Config
from turnwise.environments.base import InfrastructureFailure
from turnwise.environments.sites.install import PROGRAM, interpreter, seed_of, surroundings
from turnwise.environments.sites.table import Site, site_named
from turnwise.errors import DataError, TurnwiseError

START_S = 120.0
"""Longest wait for a site to be loaded."""
ANSWER_S = 30.0
"""Longest wait for an answer of a keeper."""
QUIET_S = 10.0
"""Longest wait for the requests that an instance has in hand."""
SOCKET, LOG, BUSY = "s", "log", "busy"
LONGEST = 100
"""Bytes of a path that every system takes for a socket."""


def sites_folder(config: Config) -> Path:
    """Where the sites of a home run."""
    return config.home / "sites"


@dataclass(frozen=True, slots=True)
class SiteStatus:
    """A site that runs: where people look at it, its keeper's process, and how many rollouts have an instance."""

    name: str
    url: str
    pid: int
    instances: int


class SiteInstance:
    """An instance of a site for one rollout: a process with a copy of the data. It ends with ``close``, and with us."""

    def __init__(self, site: Site, wire: socket.socket, said: Mapping[str, Any]) -> None:
        self.site, self._wire = site, wire
        self.port, self.pid, self.folder = int(said["port"]), int(said["pid"]), Path(said["folder"])
        self.database = self.folder / "data" / site.database
        self.before = Path(said["seed"]) / site.database
        """The database as the instance began: that of its keeper, which may be older than what would be made now."""

    def check(self) -> None:
        """Raises InfrastructureFailure where it has ended: its keeper hangs up then."""
        if self._wire.fileno() >= 0 and not select.select([self._wire], [], [], 0)[0]:
            return
        raise InfrastructureFailure(f"the site {self.site.name} has ended in the middle of a rollout")

    def settle(self) -> None:
        """Wait until it has answered what it was asked. Raises InfrastructureFailure."""
        until = time.monotonic() + QUIET_S
        while (self.folder / BUSY).read_text(encoding="ascii").strip() != "0":
            self.check()
            if time.monotonic() > until:
                os.kill(self.pid, signal.SIGUSR1)  # its keeper has not hung up, so that it is still this process
                said = f"the site {self.site.name} does not finish a request within {QUIET_S:g} s; its log says where"
                raise InfrastructureFailure(said)
            time.sleep(0.01)
        self.check()

    def close(self) -> None:
        """End it and its data. May be called again."""
        self._wire.close()


def open_instance(sites: Path, site: Site) -> SiteInstance:
    """An instance of a site that runs in the folder ``sites``. Raises InfrastructureFailure where it does not."""
    wire = _connected(sites / site.name)
    if wire is None:
        raise InfrastructureFailure(f"the site {site.name} is not running; start it: turnwise sites start {site.name}")
    try:
        said = _ask(wire, {"do": "open", "address": site.address})
        if "fault" in said:
            raise InfrastructureFailure(f"the site {site.name} gives no instance: {said['fault']}")
        return SiteInstance(site, wire, said)
    except OSError as e:
        wire.close()
        raise InfrastructureFailure(f"the site {site.name} does not answer: {e}; stop and start it") from e
    except BaseException:
        wire.close()
        raise


def status_of(sites: Path, name: str) -> SiteStatus | None:
    """None where it does not run."""
    said = _asked_once(sites / site_named(name).name, {"do": "status"})
    return None if said is None else SiteStatus(name, _url(said["port"]), said["pid"], said["instances"])


def reset(sites: Path, name: str) -> str:
    """Begin the instance that people look at anew; gives its address. Raises DataError where the site does not run."""
    said = _asked_once(sites / site_named(name).name, {"do": "reset"})
    if said is None:
        raise DataError(f"the site {name} is not running; start it: turnwise sites start {name}")
    return _url(said["port"])


def stop(sites: Path, name: str) -> bool:
    """End a site and all of its instances; says whether it ran. Raises TurnwiseError where it does not end."""
    place = sites / site_named(name).name
    if _asked_once(place, {"do": "stop"}) is None:
        return False
    until = time.monotonic() + ANSWER_S
    while (wire := _connected(place)) is not None:
        wire.close()
        if time.monotonic() > until:
            raise TurnwiseError(f"the site {name} does not end; its log is {place / LOG}")
        time.sleep(0.05)
    with contextlib.suppress(FileNotFoundError):
        (place / SOCKET).unlink()
    return True


def start(sites: Path, name: str, port: int = 0) -> SiteStatus:
    """Start a site that goes on after us, unless it runs already. Raises DataError, and TurnwiseError with its log."""
    _start(sites, name, port, attached=False)
    found = status_of(sites, name)
    if found is None:
        raise TurnwiseError(f"the site {name} ended at once; its log is {sites / name / LOG}")
    return found


@contextlib.contextmanager
def running(sites: Path, names: Sequence[str]) -> Iterator[Mapping[str, SiteStatus]]:
    """Sites in a folder of their own, which run as long as the block, and end with us if we are killed."""
    with contextlib.ExitStack() as open_ones:
        found = {}
        for name in names:
            process = _start(sites, name, 0, attached=True)
            if process is None:
                raise DataError(f"the site {name} runs in {sites} already")
            open_ones.callback(_ended, process)
            status = status_of(sites, name)
            assert status is not None
            found[name] = status
        yield found


def _ended(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()  # which is what it goes by
    try:
        process.wait(ANSWER_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _start(sites: Path, name: str, port: int, attached: bool) -> subprocess.Popen[bytes] | None:
    """Start the keeper of a site and wait until it is loaded; None where one runs."""
    site = site_named(name)
    python, seed, place = interpreter(), seed_of(site), sites.absolute() / name
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        with FileLock(place / "lock", timeout=START_S):
            if (wire := _connected(place)) is not None:
                wire.close()
                return None
            with contextlib.suppress(FileNotFoundError):
                (place / SOCKET).unlink()
            with (place / LOG).open("wb") as log, socket.socket(socket.AF_UNIX) as listener, _short(place) as short:
                listener.bind(short)
                listener.listen(64)
                words = [str(python), "-I", "-B", str(PROGRAM), "serve", name, str(seed), str(place)]
                words += [str(listener.fileno()), str(port), *(["0"] if attached else [])]
                process = subprocess.Popen(
                    words,
                    stdin=subprocess.PIPE if attached else subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    pass_fds=(listener.fileno(),),
                    cwd=place,
                    env=surroundings() | {"HOME": str(place)},
                    start_new_session=True,  # Ctrl-C is for who plays, not for the site in the middle of it
                )
            _wait_for(process, name, place / LOG)
            return process
    except Timeout:
        raise DataError(f"another process starts the site {name}; wait for it") from None
    except OSError as e:
        raise DataError(f"the site {name} cannot be started in {place}: {e}") from e


def _wait_for(process: subprocess.Popen[bytes], name: str, log: Path) -> None:
    assert process.stdout is not None
    if select.select([process.stdout], [], [], START_S)[0] and b"ready" in os.read(process.stdout.fileno(), 4096):
        process.stdout.close()
        return
    process.kill()
    process.wait()
    said = " | ".join(log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-3:])[-400:]
    raise TurnwiseError(f"the site {name} does not start: {said or f'it was not ready within {START_S:g} s'}")


def _asked_once(place: Path, asked: Mapping[str, object]) -> dict[str, Any] | None:
    wire = _connected(place)
    if wire is None:
        return None
    with wire:
        try:
            said = _ask(wire, asked)
        except OSError as e:
            raise TurnwiseError(f"the site in {place} does not answer: {e}") from e
    if "fault" in said:
        raise TurnwiseError(f"the site in {place} says: {said['fault']}")
    return said


def _ask(wire: socket.socket, asked: Mapping[str, object]) -> dict[str, Any]:
    """Raises OSError where no answer comes."""
    wire.sendall(json.dumps(asked).encode() + b"\n")
    said = b""
    while not said.endswith(b"\n"):
        more = wire.recv(4096)
        if not more:
            raise ConnectionResetError("its keeper hung up")
        said += more
    return json.loads(said)


def _connected(place: Path) -> socket.socket | None:
    """A connection to the keeper of a folder; None where there is none."""
    wire = socket.socket(socket.AF_UNIX)
    wire.settimeout(ANSWER_S)
    try:
        with _short(place) as short:
            wire.connect(short)
    except OSError:
        wire.close()
        return None
    return wire


@contextlib.contextmanager
def _short(place: Path) -> Iterator[str]:
    """The socket's path in a folder, short enough for the system. Raises OSError, also where it cannot be."""
    path = str(place / SOCKET)
    if len(os.fsencode(path)) <= LONGEST:
        yield path
        return
    if sys.platform != "linux":
        raise OSError(f"the path {path} is too long for a socket; choose a shorter --home")
    folder = os.open(place, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{SOCKET}"
    finally:
        os.close(folder)


def _url(port: int) -> str:
    return f"http://127.0.0.1:{port}"
