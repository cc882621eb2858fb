"""Hosts that are played from elsewhere: a browser believes it is at a site, and gets its pages from a mirror of it.

Nothing of such a host goes to the network: a request is answered from the mirror's address. A browser asks nobody about
where it is redirected to, so a page that moved is answered by one that goes there, and parts of a page are followed
here. Of other hosts nothing changes.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Mapping
from urllib.parse import urljoin, urlsplit

from playwright.async_api import APIResponse, BrowserContext, Error, Route

FETCH_S = 15.0
"""Longest wait for the mirror, and for a browser to leave a page that moved."""
MOST_MOVES = 10
"""How often a part of a page may be somewhere else."""
_MOVED = (301, 302, 303, 307, 308)
_NOT_PASSED_ON = ("content-encoding", "content-length", "transfer-encoding", "connection", "alt-svc")
"""Headers of an answer that hold between two programs alone."""


async def serve_mirrors(context: BrowserContext, mirrors: Mapping[str, str]) -> None:
    """Answer what is asked of these hosts from their mirrors; of a subdomain as well, where its site is named `*.`."""
    if mirrors:
        served = _Served(mirrors)
        await context.route(lambda url: mirror_of(url, mirrors) is not None, served.answer)


class _Served:
    def __init__(self, mirrors: Mapping[str, str]) -> None:
        self._mirrors = mirrors
        self._held = f"turnwise-{secrets.token_hex(8)}"
        """What a page that moved waits for, so that it is never taken for one that is there."""

    async def answer(self, route: Route) -> None:
        try:
            if self._held in route.request.url:
                await asyncio.sleep(FETCH_S)
                return await route.abort("aborted")
            await self._answer(route)
        except Error:
            await route.abort("connectionrefused")

    async def _answer(self, route: Route) -> None:
        """Raises Playwright's error where the mirror cannot be reached, or has no place for it."""
        request, url = route.request, route.request.url
        got = await self._fetched(route, url)
        for _ in range(MOST_MOVES):
            if got.status not in _MOVED or "location" not in got.headers:
                break
            url = urljoin(url, got.headers["location"])
            if request.is_navigation_request():
                return await self._gone_to(route, got, url)
            got = await self._fetched(route, url)
        return await route.fulfill(status=got.status, headers=_passed_on(got), body=await got.body())

    async def _fetched(self, route: Route, url: str) -> APIResponse:
        where = mirror_of(url, self._mirrors)
        if where is None:
            raise Error("what it is at has no mirror")
        return await route.fetch(url=where, max_redirects=0, timeout=FETCH_S * 1000)

    async def _gone_to(self, route: Route, got: APIResponse, url: str) -> None:
        there = json.dumps(url).replace("<", "\\u003c")
        page = f"<script>location.replace({there})</script><script src='/{self._held}'></script>"
        headers = _passed_on(got) | {"content-type": "text/html"}
        headers = {name: value for name, value in headers.items() if name in ("content-type", "set-cookie")}
        await route.fulfill(status=200, headers=headers, body=page)


def _passed_on(got: APIResponse) -> dict[str, str]:
    return {name: value for name, value in got.headers.items() if name not in _NOT_PASSED_ON}


def mirror_of(url: str, mirrors: Mapping[str, str]) -> str | None:
    """Where an address is to be had; None where its host has no mirror."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    host = (parts.hostname or "").lower()
    where = mirrors.get(host)
    if where is None:
        where = next((w for name, w in mirrors.items() if name.startswith("*.") and host.endswith(name[1:])), None)
    if where is None or parts.scheme not in ("http", "https"):
        return None
    return f"{where}{parts.path or '/'}" + (f"?{parts.query}" if parts.query else "")
