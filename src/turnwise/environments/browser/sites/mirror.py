"""Hosts that are played from elsewhere: a browser believes it is at a site, and gets its pages from a mirror of it.

Nothing of such a host goes to the network: a request is answered from the mirror's address, one step at a time, so that
a redirect of the mirror is the browser's to follow. Of other hosts nothing changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from playwright.async_api import BrowserContext, Error, Route

FETCH_S = 15.0
"""Longest wait for the mirror."""
_NOT_PASSED_ON = ("content-encoding", "content-length", "transfer-encoding", "connection", "alt-svc")
"""Headers of an answer that hold between two programs alone."""


async def serve_mirrors(context: BrowserContext, mirrors: Mapping[str, str]) -> None:
    """Answer what is asked of these hosts from their mirrors; of a subdomain as well, where its site is named `*.`."""
    if not mirrors:
        return

    def mirrored(url: str) -> bool:
        return mirror_of(url, mirrors) is not None

    async def answer(route: Route) -> None:
        where = mirror_of(route.request.url, mirrors)
        try:
            got = await route.fetch(url=where, max_redirects=0, timeout=FETCH_S * 1000)
        except Error:
            await route.abort("connectionrefused")
            return
        headers = {name: value for name, value in got.headers.items() if name.lower() not in _NOT_PASSED_ON}
        await route.fulfill(status=got.status, headers=headers, body=await got.body())

    await context.route(mirrored, answer)


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
