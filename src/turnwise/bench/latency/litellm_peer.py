"""The peer of the latency bench: the LiteLLM proxy in an environment of its own, kept in the cache folder.

It runs as its documentation recommends for production: one worker, no debug output, no look-ups over the network, a
master key, so that it checks a token as the gateway does.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from turnwise.bench.latency.load import Target
from turnwise.bench.processes import child
from turnwise.config import cache_dir
from turnwise.errors import TurnwiseError

PACKAGE = "litellm[proxy]"
KEY = "sk-bench"
ENVIRONMENT = {"LITELLM_MODE": "PRODUCTION", "LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
INSTALL_LIMIT_S = 900


def folder() -> Path:
    return cache_dir() / "peers" / "litellm"


def version() -> str | None:
    """The installed version, or None when it is not installed."""
    python = folder() / "bin" / "python"
    if not python.exists():
        return None
    done = subprocess.run(
        [python, "-c", "import importlib.metadata as m; print(m.version('litellm'))"], capture_output=True, text=True
    )
    return done.stdout.strip() if done.returncode == 0 and (folder() / "bin" / "litellm").exists() else None


def install() -> str:
    """Install the newest proxy that the package index can complete, unless one is there. Gives its version."""
    if (found := version()) is not None:
        return found
    python = folder() / "bin" / "python"
    for command in (
        [sys.executable, "-P", "-m", "venv", str(folder())],
        [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", PACKAGE],
    ):
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_LIMIT_S)
        if done.returncode:
            raise TurnwiseError(f"could not install {PACKAGE} into {folder()}:\n{done.stderr[-1500:]}")
    if (found := version()) is None:
        raise TurnwiseError(f"{PACKAGE} was installed into {folder()}, but has no `litellm` command")
    return found


@contextmanager
def proxy(engine_port: int, scratch: Path) -> Iterator[tuple[Target, int]]:
    """A running proxy before the engine: where to ask, and its pid."""
    config = scratch / "litellm.yaml"
    parameters = {"model": "openai/turnwise", "api_base": f"http://127.0.0.1:{engine_port}/v1", "api_key": "none"}
    tree = {
        "model_list": [{"model_name": "turnwise", "litellm_params": parameters}],
        "litellm_settings": {"telemetry": False, "num_retries": 0},
        "general_settings": {"master_key": KEY},
    }
    config.write_text(json.dumps(tree), encoding="utf-8")  # JSON is YAML
    command = [str(folder() / "bin" / "litellm"), "--config", str(config), "--host", "127.0.0.1"]
    command += ["--num_workers", "1", "--telemetry", "False", "--port"]
    with (
        reserved_port() as port,
        child([*command, str(port)], f"http://127.0.0.1:{port}/health/liveliness", ENVIRONMENT) as process,
    ):
        yield Target(port, headers=(f"Authorization: Bearer {KEY}",)), process.pid


@contextmanager
def reserved_port() -> Iterator[int]:
    """A port of loopback that nobody else is given: LiteLLM takes no socket, and of port 0 does not say which it got.

    A bound socket that does not listen keeps it. On Linux another one may listen there that shares addresses, as
    asyncio's do; elsewhere the port is only free when it is chosen.
    """
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
        if sys.platform != "linux":
            sock.close()
        yield port
