"""Gets a calendar from a file or an address, whole or not at all, within limits of size and time.

Neither an error nor the log ever has the address: with a "secret address" it is the password.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from turnwise.errors import SensorFault

MOST_BYTES = 10 << 20
"""Largest calendar that is read. Ten years of a busy person are half of it."""
LIMIT_S = 20.0
"""Longest time for an answer, from the first word to the last byte."""


@dataclass(frozen=True)
class ServerAnswer:
    """What a server said; `headers` by their names in lower case."""

    status: int
    content: bytes
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Fetched:
    """A calendar's text, and the mark by which its source will know whether it has changed; "" for none."""

    content: bytes
    mark: str = ""


def from_file(path: Path, mark: str) -> Fetched | None:
    """The file, or None where it still has this mark. Raises SensorFault."""
    try:
        about = path.stat()
        now = f"{about.st_mtime_ns} {about.st_size}"
        if now == mark:
            return None
        if not path.is_file():
            raise SensorFault(f"{path} is no file")
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as e:
        raise SensorFault(f"{path} cannot be read: {e.strerror}") from None
    if len(content) > MOST_BYTES:
        raise SensorFault(f"{path} is larger than {MOST_BYTES >> 20} MB")
    return Fetched(content, now)


def from_address(url: str, auth: tuple[str, str] | None, mark: str) -> Fetched | None:
    """What stands at an address, or None where the server says that it still has this mark. Raises SensorFault."""
    answer = answered("GET", url, auth, headers={"If-None-Match": mark} if mark else {})
    if answer.status == 304 and mark:
        return None
    expect_success(url, answer)
    mark = answer.headers.get("etag", "")
    return Fetched(answer.content, mark if mark.isascii() and mark.isprintable() else "")


def expect_success(url: str, answer: ServerAnswer) -> None:
    """Raises SensorFault for an answer that is not the thing asked for, with what a person can do."""
    if 200 <= answer.status < 300:
        return
    advice = {
        401: "; see schedule.calendar_user and schedule.calendar_password_env",
        403: "; see schedule.calendar_user and schedule.calendar_password_env",
        404: "; copy the calendar's address anew",
    }.get(answer.status, "")
    raise SensorFault(f"{host_of(url)} answered with status {answer.status}{advice}")


def answered(method: str, url: str, auth: tuple[str, str] | None = None, **parts: Any) -> ServerAnswer:
    """A server's whole answer to a request, whose other `parts` are those of `httpx.Request`.

    Raises SensorFault where there is none, or it is too large or too slow.
    """
    host = host_of(url)
    try:
        request = httpx.Request(method, url, **parts)
        return asyncio.run(_answered(request, auth))
    except TimeoutError:
        raise SensorFault(f"{host} did not answer within {LIMIT_S:g} seconds") from None
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as e:  # the last: a header or a name that is no ASCII
        raise SensorFault(f"{host} cannot be reached ({type(e).__name__})") from None


def host_of(url: str) -> str:
    """What of an address may be shown."""
    return urlsplit(url).hostname or "the calendar's host"


async def stays_secure(secure: bool, request: httpx.Request) -> None:
    """A server may send us on, but not into the open.

    `secure`: whether the first request was encrypted. Raises SensorFault.
    """
    if secure and request.url.scheme != "https":
        raise SensorFault(f"{request.url.host} would be asked without encryption: a redirect leads there")


async def _answered(request: httpx.Request, auth: tuple[str, str] | None) -> ServerAnswer:
    hooks = {"request": [partial(stays_secure, request.url.scheme == "https")]}
    async with (
        asyncio.timeout(LIMIT_S),
        httpx.AsyncClient(timeout=LIMIT_S, follow_redirects=True, max_redirects=5, event_hooks=hooks) as client,
    ):
        # Not compressed: a few kilobytes could become gigabytes before they are counted.
        request.headers["Accept-Encoding"] = "identity"
        response = await client.send(request, stream=True, auth=httpx.BasicAuth(*auth) if auth else None)
        try:
            content = bytearray()
            async for chunk in response.aiter_raw():
                content += chunk
                if len(content) > MOST_BYTES:
                    raise SensorFault(f"{request.url.host} sent more than {MOST_BYTES >> 20} MB")
        finally:
            await response.aclose()
        return ServerAnswer(response.status_code, bytes(content), {k.lower(): v for k, v in response.headers.items()})
