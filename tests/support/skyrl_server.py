"""A real server with the Tinker API (SkyRL's, computing with JAX on the CPU) as a child process.

`make test-tinker` makes the environment that it runs in.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from tests.support.child_server import ChildServer, ready

PYTHON = os.environ.get("TURNWISE_TINKER_PYTHON", "")
"""The interpreter of an environment that has SkyRL; empty where there is none."""
CHILD = Path(__file__).parent / "skyrl_child.py"
START_LIMIT_S = 180


class SkyrlServer(ChildServer):
    """What it has on disk is there when it is started again."""

    def __init__(self, model: Path, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        # What JAX compiled for these shapes once stays beside the environment, for the next start.
        compiled = Path(PYTHON).parent.parent / "compiled"
        environment = {
            "JAX_PLATFORMS": "cpu",
            "JAX_COMPILATION_CACHE_DIR": str(compiled),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
        }
        super().__init__("/api/v1/healthz", START_LIMIT_S, folder / "log", environment)
        self._model, self._folder = model, folder

    def command(self) -> Sequence[str]:
        return [PYTHON, str(CHILD), str(self._folder), str(self._model), str(self.port)]


def skyrl_server(model: Path, folder: Path) -> AbstractContextManager[SkyrlServer]:
    """A server that is ready, until the block ends."""
    return ready(SkyrlServer(model, folder))
