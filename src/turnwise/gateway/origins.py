"""Which names this server answers to, and which web pages may ask it: checked on every route, before any token.

A browser on this machine reaches a loopback port for any web page. A page whose own name is made to point at 127.0.0.1
is told by its `Host`, any other page by its `Origin`; a request of no page has neither.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Awaitable, Callable
from functools import lru_cache

from starlette.types import ASGIApp, Receive, Scope, Send

from turnwise.config import LOOPBACK, ServerConfig
from turnwise.gateway.errors import ApiError

Refuse = Callable[[Scope, ApiError, Receive, Send], Awaitable[None]]

FORMS = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data")
"""What a page may send anywhere without being asked whether it may."""
EXPOSED = (
    *("x-turnwise-turn-id", "x-turnwise-session-id", "x-turnwise-version", "x-turnwise-lineage"),
    *("x-turnwise-ignored", "retry-after"),
)
"""Headers of an answer that pages of `server.cors_origins` may read."""


class Origins:
    """Refuses an unknown Host (421), a web page that may not ask (403), a form where no token is asked for (415)."""

    def __init__(self, app: ASGIApp, server: ServerConfig, refuse: Refuse) -> None:
        self.app = app
        self._auth = server.auth
        self._origins = frozenset(server.cors_origins)
        self._names = _own_names(server)
        self._refuse = refuse
        self._known = lru_cache(maxsize=256)(self._is_ours)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                self.check(scope)
            except ApiError as e:
                await self._refuse(scope, e, receive, send)
                return
        await self.app(scope, receive, send)

    def check(self, scope: Scope) -> None:
        """Raises ApiError."""
        hosts, origin, site, kind = 0, None, b"none", b""
        for name, value in scope["headers"]:
            if name == b"host":
                hosts += 1
                if not self._known(value):
                    raise ApiError(
                        421,
                        f"this server does not answer to the name {value.decode('latin-1')[:100]!r}; use its address, "
                        "or add the name to server.allowed_hosts",
                        code="unknown_host",
                    )
            elif name == b"origin":
                origin = value.decode("latin-1")
                if origin not in self._origins:
                    raise ApiError(
                        403,
                        f"web pages of {origin[:100]!r} may not ask this server; add it to server.cors_origins if they "
                        "shall",
                        code="unknown_origin",
                    )
            elif name == b"sec-fetch-site":
                site = value
            elif name == b"content-type":
                kind = value
        if hosts != 1 and not (hosts == 0 and scope.get("http_version") == "1.0"):  # which no browser speaks
            raise ApiError(400, "a request has exactly one Host header", code="unknown_host")
        if origin is None and site in (b"cross-site", b"same-site"):
            raise ApiError(403, "other web pages may not ask this server (server.cors_origins)", code="unknown_origin")
        if not self._auth and scope["method"] == "POST" and kind.decode("latin-1").strip().lower().startswith(FORMS):
            raise ApiError(
                415,
                "send the JSON as 'Content-Type: application/json'; with server.auth = false a form is refused, since "
                "any web page can send one",
                code="unsupported_media_type",
            )

    def _is_ours(self, host: bytes) -> bool:
        name = host.decode("latin-1").strip().lower()
        if name.startswith("["):
            name, _, port = name[1:].partition("]")
            port = port.removeprefix(":")
        else:
            name, _, port = name.partition(":")
        if port and not port.isdecimal():
            return False
        return name.rstrip(".") in self._names or _is_address(name)


def _own_names(server: ServerConfig) -> frozenset[str]:
    names = {*LOOPBACK, server.host, *server.allowed_hosts}
    if server.host not in LOOPBACK:
        machine = socket.gethostname()
        names |= {machine, f"{machine.partition('.')[0]}.local"}
    return frozenset(name.lower().rstrip(".") for name in names)


def _is_address(name: str) -> bool:
    """An address as such is what the client dialled: no name was made to point anywhere."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
