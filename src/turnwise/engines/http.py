"""HTTP as all engine clients use it: one kind of client, and faults as EngineError. Streams: see `events`.

An address where nothing answers is EngineUnreachable, silence is a 504, and what is not understood is a 502.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from typing import Any, cast

import httpx

from turnwise.errors import ConfigError, EngineError, EngineUnreachable, UnknownModel

CONNECT_S = 5.0
ON_A_SOCKET = "http://engine.socket"
"""What stands in requests over a Unix socket in place of an address."""
AWAY = "the engine did not take the request in time; it may be starting again"
SHOWN = 200
LONGEST_PAUSE_S = 86400.0
PASSED_ON = {400, 404, 429, 503}
"""Statuses of an engine that mean the same to the client; any other fault of the engine is a bad gateway."""


def engine_client(url: str, stall_s: float, headers: Mapping[str, str] | None = None) -> httpx.AsyncClient:
    """A client for one server. `stall_s` is the longest silence that is waited through."""
    limits = httpx.Limits(max_connections=1024, max_keepalive_connections=256)
    path = socket_path(url)
    return httpx.AsyncClient(
        base_url=url if path is None else ON_A_SOCKET,
        headers=headers,
        timeout=httpx.Timeout(stall_s, connect=CONNECT_S, pool=stall_s),
        limits=limits,
        trust_env=False,
        transport=None if path is None else httpx.AsyncHTTPTransport(uds=path, limits=limits, trust_env=False),
    )


def socket_path(url: str) -> str | None:
    """The path of a Unix socket in an address `unix:PATH`; None for any other address."""
    return url.removeprefix("unix:") if url.startswith("unix:") else None


def key_from(variable: str) -> str | None:
    """An engine's key, from the environment; None where it is not set. Raises ConfigError for what cannot be one."""
    key = os.environ.get(variable, "").strip() or None
    if key is not None and not (key.isascii() and key.isprintable()):
        raise ConfigError(f"the key in {variable} has characters that no key has; set it anew")
    return key


def bearer(api_key: str | None) -> dict[str, str]:
    """The header that carries a key; none without one."""
    return {} if api_key is None else {"Authorization": f"Bearer {api_key}"}


def without_key(text: str, api_key: str | None) -> str:
    """What a server said, fit for a log: some repeat the key that they refuse."""
    return text if api_key is None else text.replace(api_key, "[the key]")


@contextmanager
def faults(who: str = "the engine", queued: bool = False) -> Generator[None, None, None]:
    """Turns what httpx raises into an EngineError that names the fault.

    `queued`: a request waits in a queue while the engine is away, so that silence means that it is.
    """
    try:
        yield
    except (httpx.ConnectTimeout, httpx.ConnectError) as e:
        raise EngineUnreachable(f"{who} cannot be reached: {type(e).__name__}", 502) from e
    except httpx.TimeoutException as e:
        if queued:
            raise EngineUnreachable(AWAY, 504) from e
        raise EngineError(f"{who} was silent for too long", 504) from e
    except httpx.HTTPError as e:
        raise EngineUnreachable(f"{who} went away: {type(e).__name__}", 502) from e
    except (json.JSONDecodeError, UnicodeDecodeError) as e:
        raise EngineError(f"{who} sent something that is not JSON: {e}", 502) from e


async def send(client: httpx.AsyncClient, method: str, path: str, body: dict[str, Any] | None = None) -> httpx.Response:
    """One request with a whole answer."""
    with faults(f"the engine at {client.base_url}", queued=str(client.base_url).rstrip("/") == ON_A_SOCKET):
        return await client.request(method, path, json=body)


def refusal(response: httpx.Response, api_key: str | None = None) -> EngineError:
    """A response with an error status as the error it stands for. 404 means that the model is not known.

    `api_key` is what the request carried; it stands in no message.
    """
    message = without_key(error_message(response), api_key)
    if response.status_code in (401, 403):
        sent = "refuses its key" if api_key else "wants a key"
        message = (
            f"the engine {sent} ({response.status_code}); set the variable that engine.api_key_env names: {message}"
        )
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
