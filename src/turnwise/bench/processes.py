"""Child processes of a bench: started, waited for until they answer, and stopped by their own pid."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping

import httpx
import psutil

from turnwise.errors import TurnwiseError
from turnwise.loops.table import CHILD_ENVIRONMENT

START_LIMIT_S = 120.0


@contextlib.contextmanager
def child(
    command: list[str],
    health: str | None = None,
    environment: Mapping[str, str] | None = None,
    pass_fds: tuple[int, ...] = (),
) -> Iterator[subprocess.Popen[bytes]]:
    """A process, once its health address answers; SIGTERM at the end. Raises TurnwiseError with what it said.

    `pass_fds` are what it inherits, such as a socket that listens already.
    """
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            command,
            stdout=said,
            stderr=subprocess.STDOUT,
            env=os.environ | CHILD_ENVIRONMENT | dict(environment or {}),
            pass_fds=pass_fds,
        )
        try:
            deadline = time.monotonic() + START_LIMIT_S
            while health is not None and not _answers(health):
                if process.poll() is not None or time.monotonic() > deadline:
                    said.seek(0)
                    tail = said.read()[-1500:].decode(errors="replace")
                    raise TurnwiseError(f"did not start: {' '.join(command)}\n{tail}")
                time.sleep(0.05)
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def cpu_seconds(pid: int) -> float:
    """Processor time of a process and its children so far."""
    root = psutil.Process(pid)
    times = [process.cpu_times() for process in (root, *root.children(recursive=True))]
    return sum(t.user + t.system for t in times)


def _answers(url: str) -> bool:
    with contextlib.suppress(httpx.HTTPError):
        return httpx.get(url, timeout=2, trust_env=False).status_code == 200
    return False
