"""The peer of the latency bench: the LiteLLM proxy in an environment of its own, kept in the cache folder.

It runs as its documentation recommends for production: one worker, no debug output, no look-ups over the network, a
master key, so that it checks a token as the gateway does.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from turnwise.bench.latency.load import Target
from turnwise.bench.peers import PeerEnvironment
from turnwise.bench.processes import child

PEER = PeerEnvironment("litellm", ("litellm[proxy]",), needs="litellm")
KEY = "sk-bench"
ENVIRONMENT = {"LITELLM_MODE": "PRODUCTION", "LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}


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
    command = [str(PEER.program("litellm")), "--config", str(config), "--host", "127.0.0.1"]
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
