"""Reads from an HTTP request what is not in its format: the body within its limit, who asks, in which session."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request
from starlette.requests import ClientDisconnect

from turnwise.agents.known import SESSION_HEADERS, SUB_AGENT_HEADERS
from turnwise.config import StreamsConfig
from turnwise.gateway.auth import BOUND, client_key
from turnwise.gateway.errors import ApiError
from turnwise.gateway.wire.request import SESSION_ID
from turnwise.gateway.wire.rollouts import read_rollout
from turnwise.types import Rollout, TurnKind

LONGEST_AGENT = 200
"""Characters that are kept of a user agent."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, and what they said of the session. ``key`` separates clients that share a token."""

    key: str
    session_id: str | None = None
    source: str = "lineage"
    turn_type: str | None = None
    session_done: bool = False
    retry_key: str | None = None
    is_retry: bool = False
    agent: str | None = None  # what it calls itself
    rollout: Rollout | None = None  # what it says of the session as one
    bound: bool = False  # its token is that of the session's rollout, and opens nothing else


async def read_body(request: Request, limit_mb: float) -> bytes:
    """The whole body, refused with 413 as soon as it is known to be too large. 499: its client hung up meanwhile."""
    limit = int(limit_mb * 1_000_000)
    too_large = ApiError(
        413, f"the request body is larger than {limit_mb:g} MB (server.max_body_mb)", code="body_too_large"
    )
    length = request.headers.get("content-length", "")
    if length.isdecimal() and (len(length) > 15 or int(length) > limit):
        raise too_large
    parts: list[bytes] = []
    size = 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > limit:
                raise too_large
            parts.append(part)
    except ClientDisconnect as e:
        raise ApiError(499, "the client closed the connection before its request was complete") from e
    return b"".join(parts)


def read_caller(request: Request, url_session: str | None, streams: StreamsConfig) -> Caller:
    """Who asks, from the headers and the URL. Raises ApiError for a header of ours that cannot be honoured.

    A session id of another maker's header that is no id of ours is left alone: lineage finds the session.
    """
    headers = request.headers
    session, source = url_session, "url"
    if session is None:
        session, source = headers.get("x-session-id"), "header"
    if session is not None and not SESSION_ID.match(session):
        where = "X-Session-Id" if url_session is None else "session"
        raise ApiError(400, f"{where}: a session id is 1 to 200 letters, digits or any of . _ : @ = + -", param=where)
    if session is None:
        given = (headers.get(name) for name in SESSION_HEADERS)
        session = next((value for value in given if value is not None and SESSION_ID.match(value)), None)
        sub_agent = next((headers[name] for name in SUB_AGENT_HEADERS if name in headers), None)
        if session is not None and sub_agent is not None and SESSION_ID.match(f"{session}:{sub_agent}"):
            session = f"{session}:{sub_agent}"
    turn_type = headers.get("x-turn-type")
    if turn_type is not None and turn_type not in set(TurnKind):
        raise ApiError(400, "X-Turn-Type is 'main' or 'side'", param="X-Turn-Type")
    done = headers.get("x-session-done", "").strip().lower()
    if done not in ("", "0", "1", "true", "false"):
        raise ApiError(400, "X-Session-Done is 'true' or 'false'", param="X-Session-Done")
    retries = headers.get("x-stainless-retry-count", "0")
    return Caller(
        key=client_key(request),
        session_id=session,
        source=source if session else "lineage",
        turn_type=turn_type,
        session_done=done in ("1", "true"),
        retry_key=headers.get("idempotency-key") or headers.get("x-idempotency-key"),
        is_retry=retries.isdecimal() and retries.strip("0") != "",
        agent=headers.get("user-agent", "")[:LONGEST_AGENT] or None,
        rollout=read_rollout(headers, session, streams),
        bound=request.scope.get(BOUND) is not None,
    )
