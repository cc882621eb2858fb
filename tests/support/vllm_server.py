"""A real vLLM server on the CPU as a child process. `make test-vllm` makes the environment that it runs in."""

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

PYTHON = os.environ.get("TURNWISE_VLLM_PYTHON", "")
"""The interpreter of an environment that has vLLM; empty where there is none."""
START_LIMIT_S = 240
FLAGS = (
    *("--served-model-name", "base", "--host", "127.0.0.1", "--dtype", "float32", "--enforce-eager"),
    *("--max-model-len", "2048", "--max-num-seqs", "16", "--enable-lora", "--max-lora-rank", "16", "--max-loras", "2"),
    *("--max-cpu-loras", "4", "--enable-prompt-tokens-details"),
)
ENVIRONMENT = {
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}


class VllmServer:
    """The server on a port of its own. It can be killed and started again there."""

    def __init__(self, model: Path, log: Path, *flags: str) -> None:
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            self.port: int = sock.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._command = [PYTHON, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
        self._command += ["--port", str(self.port), *FLAGS, *flags]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *, wait: bool = True) -> None:
        with self._log.open("ab") as out:
            self._process = subprocess.Popen(
                self._command, stdout=out, stderr=out, env=os.environ | ENVIRONMENT, start_new_session=True
            )
        if wait:
            self.wait_ready()

    def wait_ready(self) -> None:
        process = self._process
        assert process is not None
        wait_until(lambda: self._healthy() or process.poll() is not None, START_LIMIT_S)
        assert process.poll() is None, self._log.read_text()[-3000:]

    def kill(self) -> None:
        """End the server and the engine process that it started, as a crash would."""
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # the group is of this server alone
        self._process.wait(timeout=20)
        self._process = None

    def running(self) -> int:
        """Requests that the engine computes or holds waiting now."""
        metrics = httpx.get(f"{self.url}/metrics", timeout=20).text.splitlines()
        names = ("vllm:num_requests_running{", "vllm:num_requests_waiting{")
        return sum(int(float(line.split()[-1])) for line in metrics if line.startswith(names))

    def _healthy(self) -> bool:
        with suppress(httpx.HTTPError):
            return httpx.get(f"{self.url}/health", timeout=5).status_code == 200
        return False


@contextmanager
def vllm_server(model: Path, log: Path, *flags: str) -> Iterator[VllmServer]:
    """A server that is ready, until the block ends."""
    server = VllmServer(model, log, *flags)
    try:
        server.start()
        yield server
    finally:
        server.kill()
