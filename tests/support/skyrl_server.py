"""A real server with the Tinker API (SkyRL's, computing with JAX on the CPU) as a child process.

`make test-tinker` makes the environment that it runs in.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

from tests.support.servers import wait_until

PYTHON = os.environ.get("TURNWISE_TINKER_PYTHON", "")
"""The interpreter of an environment that has SkyRL; empty where there is none."""
CHILD = Path(__file__).parent / "skyrl_child.py"
START_LIMIT_S = 180


class SkyrlServer:
    """The server on a port of its own. It can be killed and started again there, with what it had on disk."""

    def __init__(self, model: Path, folder: Path) -> None:
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            self.port: int = sock.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        folder.mkdir(exist_ok=True)
        self._command = [PYTHON, str(CHILD), str(folder), str(model), str(self.port)]
        self._log, self._process = folder / "log", None
        # What JAX compiled for these shapes once stays beside the environment, for the next start.
        compiled = Path(PYTHON).parent.parent / "compiled"
        self._environment = {
            "JAX_PLATFORMS": "cpu",
            "JAX_COMPILATION_CACHE_DIR": str(compiled),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
        }

    def start(self) -> None:
        with self._log.open("ab") as out:
            self._process = subprocess.Popen(
                self._command, stdout=out, stderr=out, env=os.environ | self._environment, start_new_session=True
            )
        process = self._process
        wait_until(lambda: self._healthy() or process.poll() is not None, START_LIMIT_S)
        assert process.poll() is None, self._log.read_text()[-3000:]

    def kill(self) -> None:
        """End the server and its engine process, as a crash would."""
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # the group is of this server alone
        self._process.wait(timeout=20)
        self._process = None

    def _healthy(self) -> bool:
        with suppress(httpx.HTTPError):
            return httpx.get(f"{self.url}/api/v1/healthz", timeout=5).status_code == 200
        return False


@contextmanager
def skyrl_server(model: Path, folder: Path) -> Iterator[SkyrlServer]:
    """A server that is ready, until the block ends."""
    server = SkyrlServer(model, folder)
    try:
        server.start()
        yield server
    finally:
        server.kill()
