"""A real vLLM server on the CPU as a child process. `make test-vllm` makes the environment that it runs in."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import httpx

from tests.support.child_server import ChildServer, ready

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
    "PYTHONPATH": str(Path(__file__).parent / "torchvision_ops"),
}


class VllmServer(ChildServer):
    def __init__(self, model: Path, log: Path, *flags: str) -> None:
        super().__init__("/health", START_LIMIT_S, log, ENVIRONMENT)
        self._model, self._flags = model, flags

    def command(self) -> Sequence[str]:
        start = [PYTHON, "-m", "vllm.entrypoints.openai.api_server", "--model", str(self._model)]
        return [*start, "--port", str(self.port), *FLAGS, *self._flags]

    def running(self) -> int:
        """Requests that the engine computes or holds waiting now."""
        metrics = httpx.get(f"{self.url}/metrics", timeout=20).text.splitlines()
        names = ("vllm:num_requests_running{", "vllm:num_requests_waiting{")
        return sum(int(float(line.split()[-1])) for line in metrics if line.startswith(names))


def vllm_server(model: Path, log: Path, *flags: str) -> AbstractContextManager[VllmServer]:
    """A server that is ready, until the block ends."""
    return ready(VllmServer(model, log, *flags))
