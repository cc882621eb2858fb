"""HTTP as all engine clients use it: one kind of client, and faults as EngineError. Streams: see `events`.

An address where nothing answers is EngineUnreachable, silence is a 504, and what is not understood is a 502.
"""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from typing import Any, cast

import httpx

from turnwise.errors import EngineError, EngineUnreachable, UnknownModel

CONNECT_S = 5.0
SHOWN = 200
LONGEST_PAUSE_S = 86400.0
PASSED_ON = {400, 404, 429, 503}
"""Statuses of an engine that mean the same to the client; any other fault of the engine is a bad gateway."""


def engine_client(url: str, stall_s: float, headers: Mapping[str, str] | None = None) -> httpx.AsyncClient:
    """A client for one server. `stall_s` is the longest silence that is waited through."""
    return httpx.AsyncClient(
        base_url=url,
        headers=headers,
        timeout=httpx.Timeout(stall_s, connect=CONNECT_S, pool=stall_s),
        limits=httpx.Limits(max_connections=1024, max_keepalive_connections=256),
        trust_env=False,
    )


@contextmanager
def faults(who: str = "the engine") -> Generator[None, None, None]:
    """Turns what httpx raises into an EngineError that names the fault."""
    try:
        yield
    except (httpx.ConnectTimeout, httpx.ConnectError) as e:
        raise EngineUnreachable(f"{who} cannot be reached: {type(e).__name__}", 502) from e
    except httpx.TimeoutException as e:
        raise EngineError(f"{who} was silent for too long", 504) from e
    except httpx.HTTPError as e:
        raise EngineUnreachable(f"{who} went away: {type(e).__name__}", 502) from e
    except (json.JSONDecodeError, UnicodeDecodeError) as e:
        raise EngineError(f"{who} sent something that is not JSON: {e}", 502) from e


async def send(client: httpx.AsyncClient, method: str, path: str, body: dict[str, Any] | None = None) -> httpx.Response:
    """One request with a whole answer."""
    with faults(f"the engine at {client.base_url}"):
        return await client.request(method, path, json=body)


def refusal(response: httpx.Response) -> EngineError:
    """A response with an error status as the error it stands for. 404 means that the model is not known."""
    message = error_message(response)
    if response.status_code == 404:
        return UnknownModel(message, 404)
    status = response.status_code if response.status_code in PASSED_ON else 502
    return EngineError(message, status, retry_after(response.headers))


def error_message(response: httpx.Response) -> str:
    """What the body says went wrong, in any of the shapes that servers use, or the start of the body."""
    try:
        body = response.json()
    except ValueError:
        return response.text[:SHOWN]
    for _ in range(2):
        if not isinstance(body, dict):
            break
        body = cast(Any, body.get("error") or body.get("message") or body.get("error_message") or body.get("detail"))
    return (body if isinstance(body, str) else json.dumps(body)) if body else response.text[:SHOWN]


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds of a Retry-After header, which may also be a date; None where there is none or it is not understood."""
    value = headers.get("retry-after")
    if value is None:
        return None
    try:
        seconds = (
            float(value) if value.strip()[:1].isdigit() else parsedate_to_datetime(value).timestamp() - time.time()
        )
    except ValueError:
        return None
    return min(max(0.0, seconds), LONGEST_PAUSE_S)
