"""Who asks: the token that a request came with, and whether its route takes it."""

from __future__ import annotations

import hashlib

from fastapi import Request

from turnwise.access_tokens import Scope, Tokens
from turnwise.gateway.errors import ApiError
from turnwise.gateway.scopes import scopes_of


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
