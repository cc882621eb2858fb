"""The routes that read the whole journal, asked of a real gateway over HTTP, for `turnwise bench journal`."""

from __future__ import annotations

import time
from pathlib import Path

import httpx

from turnwise.access_tokens import load_tokens
from turnwise.bench.latency.arms import Said, gateway, instant_engine
from turnwise.config import Config
from turnwise.errors import TurnwiseError
from turnwise.models import resolve_model

ROUTES = ("/metrics", "/v1/status", "/v1/models", "/readyz")


def time_routes(config: Config, repeats: int) -> dict[str, list[float]]:
    """Seconds of each answer, by route. The engine behind the gateway answers at once, and nobody else asks."""
    times: dict[str, list[float]] = {}
    with (
        instant_engine(Said([(0, "yes")])) as engine,
        gateway(Path(resolve_model(config.model.path)), engine, config.home, config.journal.url) as arm,
        httpx.Client(base_url=f"http://127.0.0.1:{arm.target.port}", trust_env=False, timeout=60) as client,
    ):
        client.headers["Authorization"] = f"Bearer {load_tokens(config).admin}"
        for route in ROUTES:
            _get(client, route)
            times[route] = []
            for _ in range(repeats):
                started = time.perf_counter()
                _get(client, route)
                times[route].append(time.perf_counter() - started)
    return times


def _get(client: httpx.Client, route: str) -> None:
    answer = client.get(route)
    if answer.status_code != 200:
        raise TurnwiseError(f"{route} answered {answer.status_code}: {answer.text[:300]}")
