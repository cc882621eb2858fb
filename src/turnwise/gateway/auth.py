"""Who asks: the token that a request came with, and whether its route takes it."""

from __future__ import annotations

import hashlib

from fastapi import Request

from turnwise.access_tokens import OF_A_ROLLOUT, Scope, Tokens
from turnwise.gateway.errors import ApiError
from turnwise.gateway.scopes import scopes_of, session_of

BOUND = "turnwise.session"
"""What a request's scope calls the session that its token is held to."""


def given_token(request: Request) -> str:
    """What the client sent: `Authorization: Bearer …`, or the `x-api-key` that Anthropic's clients use."""
    header = request.headers.get("authorization", "")
    scheme, _, value = header.partition(" ")
    return value.strip() if scheme.lower() == "bearer" else request.headers.get("x-api-key", "")


def check_access(request: Request, tokens: Tokens, auth: bool) -> str | None:
    """Raises ApiError: 401 without one of our tokens, 403 with one that this route does not take. Gives the session
    that the token is held to, where it is a rollout's own.

    Without `auth` what agents use is open; what a person or an admin does still takes their token.
    """
    takes = scopes_of(request.scope["path"])
    if takes is not None and not takes:
        return None
    given = given_token(request)
    if given.startswith(OF_A_ROLLOUT):
        return _of_a_rollout(given, request.scope["path"], tokens)
    held = tokens.scope_of(given)
    if takes is None:
        if held is None and auth:
            raise _unknown(Scope.AGENT)
        return None  # there is nothing, and whoever may ask is told so
    if held in takes or (not auth and Scope.AGENT in takes):
        return None
    wanted = next(scope for scope in Scope if scope in takes)
    if held is None:
        raise _unknown(wanted)
    raise ApiError(
        403,
        f"this is {_OWNERS[held]} token, and here {_OWNERS[wanted]} is wanted, which `turnwise token {wanted}` prints"
        + _WHY.get((held, wanted), ""),
        code="wrong_scope",
    )


def _of_a_rollout(given: str, path: str, tokens: Tokens) -> str:
    """The session that this token opens, which is the one of the path. Raises ApiError (403)."""
    session = session_of(path)
    if session is None or not tokens.opens(given, session):
        message = "this is a rollout's token, which opens the addresses below /s/SESSION of that rollout and no others"
        raise ApiError(403, message, code="wrong_scope")
    return session


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
