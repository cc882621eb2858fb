"""The access token: made at first start, readable by its owner alone, compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path

from fastapi import Request

from turnwise.errors import ConfigError
from turnwise.gateway.errors import ApiError


def load_or_make_token(path: Path) -> str:
    """The token in `path` (mode 0600), made when the file does not exist. Raises ConfigError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            token = path.read_text(encoding="ascii").strip()
            if len(token) < 16:
                raise ConfigError(f"the token in {path} is too short; delete the file to have a new one made") from None
            path.chmod(0o600)
            return token
        token = f"tw-{secrets.token_urlsafe(32)}"
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(token + "\n")
        return token
    except OSError as e:
        raise ConfigError(f"cannot keep the access token at {path}: {e.strerror or e}; see --home") from e
    except UnicodeDecodeError as e:
        raise ConfigError(f"the token file {path} is not text; delete it to have a new one made") from e


def given_token(request: Request) -> str:
    """What the client sent: `Authorization: Bearer …`, or the `x-api-key` that Anthropic's clients use."""
    header = request.headers.get("authorization", "")
    scheme, _, value = header.partition(" ")
    return value.strip() if scheme.lower() == "bearer" else request.headers.get("x-api-key", "")


def check_token(request: Request, token: str | None) -> None:
    """Raises ApiError (401) unless the request carries the token. None: no token is required."""
    if token is None:
        return
    if not hmac.compare_digest(given_token(request).encode(), token.encode()):
        raise ApiError(
            401,
            "wrong or missing token; send 'Authorization: Bearer TOKEN' with the token that `turnwise serve` printed",
            code="invalid_api_key",
            headers={"WWW-Authenticate": "Bearer"},
        )


def client_key(request: Request) -> str:
    """A short hash that tells clients apart who share a machine: their token and their user agent."""
    parts = f"{given_token(request)}\n{request.headers.get('user-agent', '')}"
    return hashlib.sha256(parts.encode()).hexdigest()[:16]
