"""A real server of somebody else's as a child process, on a port of its own of loopback."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import httpx

from tests.support.servers import wait_until


class ChildServer:
    """It can be killed and started again at its port. ``health``: the way of its route that says whether it is ready,
    within ``limit_s``."""

    def __init__(self, health: str, limit_s: float, log: Path, environment: Mapping[str, str]) -> None:
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            self.port: int = sock.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._health, self._limit_s, self._log, self._environment = health, limit_s, log, environment
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> Sequence[str]:
        raise NotImplementedError

    def start(self, *, wait: bool = True) -> None:
        with self._log.open("ab") as out:
            self._process = subprocess.Popen(
                self.command(), stdout=out, stderr=out, env=os.environ | self._environment, start_new_session=True
            )
        if wait:
            self.wait_ready()

    def wait_ready(self) -> None:
        process = self._process
        assert process is not None
        wait_until(lambda: self._healthy() or process.poll() is not None, self._limit_s)
        assert process.poll() is None, self._log.read_text()[-3000:]

    def kill(self) -> None:
        """End the server and whatever processes it started, as a crash would."""
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # the group is of this server alone
        self._process.wait(timeout=20)
        self._process = None

    def _healthy(self) -> bool:
        with suppress(httpx.HTTPError):
            return httpx.get(f"{self.url}{self._health}", timeout=5).status_code == 200
        return False


S = TypeVar("S", bound=ChildServer)


@contextmanager
def ready(server: S) -> Iterator[S]:
    """A server that is ready, until the block ends."""
    try:
        server.start()
        yield server
    finally:
        server.kill()
