"""Who may do what: a token is an agent's, the person's or the admin's, and each route says whose it takes.

An agent must not be able to reward itself, so feedback and outcomes take no agent's token. A route that this table does
not have is a fault of the program: it does not start.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from starlette.routing import compile_path

from turnwise.access_tokens import Scope

OPEN: frozenset[Scope] = frozenset()
"""No token is asked for."""
AGENTS = frozenset({Scope.AGENT, Scope.ADMIN})
PERSON = frozenset({Scope.PERSON, Scope.ADMIN})
ADMIN = frozenset({Scope.ADMIN})
ALL = frozenset(Scope)

_IN_A_SESSION = {
    "/v1/chat/completions": AGENTS,
    "/v1/responses": AGENTS,
    "/v1/messages": AGENTS,
    "/v1/messages/count_tokens": AGENTS,
    "/v1/models": AGENTS,
    "/v1/models/{name}": AGENTS,
}
ROUTES: dict[str, frozenset[Scope]] = {
    "/healthz": OPEN,
    "/readyz": OPEN,
    **_IN_A_SESSION,
    **{f"/s/{{session}}{path}": scopes for path, scopes in _IN_A_SESSION.items()},
    "/v1/responses/{response_id}": AGENTS,
    "/openapi.json": AGENTS,
    "/v1/sessions/{session_id}/close": ALL,
    "/v1/sessions/{session_id}/outcome": PERSON,
    "/v1/sessions/{session_id}/rollout": PERSON,
    "/v1/turns/{turn_id}/feedback": PERSON,
    "/v1/status": PERSON,
    "/metrics": ADMIN,
}

_PATTERNS = [(compile_path(path)[0], scopes) for path, scopes in ROUTES.items()]
"""As the router itself looks for them: it takes some spellings (a line break at the end) that are not equal."""


def scopes_of(path: str) -> frozenset[Scope] | None:
    """Whose token a path takes; None where nothing is served."""
    return ROUTES[path] if path in ROUTES and "{" not in path else _by_pattern(path)


def session_of(path: str) -> str | None:
    """The session that a path names for an agent's requests; None where it names none."""
    if not path.startswith("/s/"):
        return None
    found = (pattern.match(path) for pattern, _ in _PATTERNS)
    return next((match["session"] for match in found if match is not None and "session" in match.groupdict()), None)


@lru_cache(maxsize=1024)
def _by_pattern(path: str) -> frozenset[Scope] | None:
    return next((scopes for pattern, scopes in _PATTERNS if pattern.match(path)), None)


def refuse_unlisted(paths: Iterable[str]) -> None:
    """Raises RuntimeError where one of the application's routes has no line in the table."""
    missing = sorted(set(paths) - set(ROUTES))
    if missing:
        raise RuntimeError(f"gateway/scopes.py does not say who may use {', '.join(missing)}")
