"""Which route was meant by a path that has none: a base URL with one `/v1` too many or too few is the usual reason."""

from __future__ import annotations

from turnwise.gateway.scopes import scopes_of

VERSION = "v1"


def path_meant(path: str) -> str | None:
    """The path that is served and says the same with `/v1` once, in its place; None where there is none."""
    parts = [part for part in path.split("/") if part]
    session = parts[:2] if parts[:1] == ["s"] and len(parts) > 2 else []
    rest = [part for part in parts[len(session) :] if part != VERSION]
    meant = "/" + "/".join([*session, VERSION, *rest])
    return meant if meant != path and rest and scopes_of(meant) is not None else None


def hint(path: str) -> str:
    """What to say of a path that does not exist, after that."""
    meant = path_meant(path)
    if meant is None:
        return ""
    if "/messages" in meant:
        return f"; it is {meant}: the base URL of Anthropic's clients has no /v1 at its end"
    return f"; it is {meant}: the base URL of OpenAI's clients ends with /v1, once"
