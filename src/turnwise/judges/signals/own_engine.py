"""A local engine of one's own for a measurement or a fit, on a socket that nobody else can reach."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx

from turnwise.config import Config
from turnwise.engines.http import ON_A_SOCKET
from turnwise.errors import TurnwiseError
from turnwise.models import resolve_model

START_S = 300.0


@contextlib.contextmanager
def own_engine(config: Config, adapters_dir: Path | None = None) -> Iterator[str]:
    """The address of an engine that serves ``model.path``, and adapters from below ``adapters_dir``.

    Raises TurnwiseError where it does not start.
    """
    model = resolve_model(config.model.path)
    with tempfile.TemporaryDirectory(prefix="turnwise-") as folder, socket.socket(socket.AF_UNIX) as listener:
        path = Path(folder) / "engine.sock"
        listener.bind(str(path))
        listener.listen(64)
        command = [sys.executable, "-P", "-m", "turnwise.local_engine", "--model", str(model)]
        command += ["--fd", str(listener.fileno()), "--dtype", config.engine.dtype]
        command += ["--threads", str(config.engine.threads)]
        command += ["--adapters-dir", str(adapters_dir)] if adapters_dir is not None else []
        with (Path(folder) / "log").open("w+b") as log:
            process = subprocess.Popen(
                command, pass_fds=(listener.fileno(),), stdout=log, stderr=log, env=dict(os.environ)
            )
            try:
                _wait(process, path, Path(folder) / "log")
                yield f"unix:{path}"
            finally:
                process.terminate()
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def _wait(process: subprocess.Popen[bytes], path: Path, log: Path) -> None:
    ends = time.monotonic() + START_S
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url=ON_A_SOCKET, timeout=5) as client:
        while time.monotonic() < ends and process.poll() is None:
            with contextlib.suppress(httpx.HTTPError):
                if client.get("/health").status_code == 200:
                    return
            time.sleep(0.2)
    raise TurnwiseError(f"the engine did not start: {log.read_text(errors='replace')[-500:]}")
