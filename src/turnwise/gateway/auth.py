"""The access tokens: made at first start, readable by their owner alone, compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from fastapi import Request

from turnwise.config import Config
from turnwise.errors import ConfigError
from turnwise.gateway.errors import ApiError
from turnwise.gateway.scopes import Scope, scopes_of


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of a home, which never show in a log."""

    agent: str = field(repr=False)
    person: str = field(repr=False)
    admin: str = field(repr=False)

    def scope_of(self, given: str) -> Scope | None:
        """Whose token it is. All are compared, whichever it is, so that the time taken says nothing."""
        held = None
        sent = given.encode()
        for scope, token in ((Scope.AGENT, self.agent), (Scope.PERSON, self.person), (Scope.ADMIN, self.admin)):
            held = scope if hmac.compare_digest(sent, token.encode()) else held
        return held


def token_path(config: Config, scope: Scope) -> Path:
    """The agents' token has the plain name: it is the one that `connect` writes into their configurations."""
    return config.token_path if scope is Scope.AGENT else config.home / f"token.{scope}"


def load_tokens(config: Config) -> Tokens:
    """All tokens of this home, made where they do not exist. Raises ConfigError."""
    made = {str(scope): load_or_make_token(token_path(config, scope)) for scope in Scope}
    if len(set(made.values())) < len(made):
        raise ConfigError(
            f"two of the files token, token.person and token.admin in {config.home} hold the same token, so an agent "
            "would be taken for another; delete one of the two to have a new one made"
        )
    return Tokens(**made)


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


def check_access(request: Request, tokens: Tokens, auth: bool) -> None:
    """Raises ApiError: 401 without one of our tokens, 403 with one that this route does not take.

    Without `auth` what agents use is open; what a person or an admin does still takes their token.
    """
    takes = scopes_of(request.scope["path"])
    if takes is not None and not takes:
        return
    held = tokens.scope_of(given_token(request))
    if takes is None:
        if held is None and auth:
            raise _unknown(Scope.AGENT)
        return  # there is nothing, and whoever may ask is told so
    if held in takes or (not auth and Scope.AGENT in takes):
        return
    wanted = next(scope for scope in Scope if scope in takes)
    if held is None:
        raise _unknown(wanted)
    raise ApiError(
        403,
        f"this is {_OWNERS[held]} token, and here {_OWNERS[wanted]} is wanted, which `turnwise token {wanted}` prints"
        + _WHY.get((held, wanted), ""),
        code="wrong_scope",
    )


_OWNERS = {Scope.AGENT: "the agents'", Scope.PERSON: "the person's", Scope.ADMIN: "the admin's"}
_WHY = {
    (Scope.AGENT, Scope.PERSON): "; an agent cannot reward itself. A person gives feedback with `turnwise feedback`",
    (Scope.PERSON, Scope.AGENT): "; keep the person's out of agents' configurations",
}


def _unknown(wanted: Scope) -> ApiError:
    return ApiError(
        401,
        f"wrong or missing token; send 'Authorization: Bearer TOKEN' with what `turnwise token {wanted}` prints",
        code="invalid_api_key",
        headers={"WWW-Authenticate": "Bearer"},
    )


def client_key(request: Request) -> str:
    """A short hash that tells clients apart who share a machine: their token and their user agent."""
    parts = f"{given_token(request)}\n{request.headers.get('user-agent', '')}"
    return hashlib.sha256(parts.encode()).hexdigest()[:16]
