"""Who may ask the local engine: whoever has the key of this start. A bare sign of life is all that others get."""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from turnwise.errors import ConfigError
from turnwise.local_engine import protocol

OPEN_ROUTES = ("/health",)
"""Its answer has a status and no body."""
SHORTEST_KEY = 16


class KeyGuard:
    """Refuses a request without the key before anything of it is read."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self._app = app
        self._wanted = f"Bearer {key}".encode("latin-1")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in OPEN_ROUTES:
            given = Headers(scope=scope).get("authorization", "").encode("latin-1")
            if not hmac.compare_digest(given, self._wanted):
                said = protocol.error("the engine wants the key of this start: 'Authorization: Bearer KEY'", 401)
                await JSONResponse(said, 401, {"WWW-Authenticate": "Bearer"})(scope, receive, send)
                return
        elif scope["type"] == "websocket":
            return  # the engine has none
        await self._app(scope, receive, send)


def key_in(environment: Mapping[str, str], variable: str) -> str:
    """The key in an environment variable. Raises ConfigError: a key that was meant must not be missing unnoticed."""
    key = environment.get(variable, "").strip()
    if len(key) < SHORTEST_KEY or not (key.isascii() and key.isprintable()) or " " in key:
        raise ConfigError(
            f"the variable {variable} holds no key: set it to at least {SHORTEST_KEY} characters without spaces, "
            "for example those of `openssl rand -hex 32`"
        )
    return key
