"""What a client has to know of turnwise: where it listens, with which token, and how much fits into the model.

Nothing of this is guessed: a limit that is too high makes the engine refuse every request, one that is too low makes a
client throw its history away. Where nobody says how much fits, a client is told only of a modest answer. What this home
knows of its own engine is never said of a server elsewhere.
"""

from __future__ import annotations

import asyncio

import httpx

from turnwise.access_tokens import load_or_make_token
from turnwise.agents.endpoint import Endpoint
from turnwise.config import LOOPBACK, Config
from turnwise.engines.examine import context_of
from turnwise.errors import ConfigError
from turnwise.home import running_url
from turnwise.net import url_of
from turnwise.types import MODEL_NAME, UPSTREAM

PATIENCE_S = 10.0
"""A server that says how much fits may have to wait for its engine first."""


def find_endpoint(
    config: Config, url: str | None, model: str | None, make_token: bool, given: str | None = None
) -> Endpoint:
    """The endpoint of this home, or of the server at `url`, which is asked for its context length. Raises ConfigError.

    A home without a token gets one with `make_token`, for its own address alone; without, the endpoint is only fit to
    be shown. A server that refuses the token raises, whatever else is known.

    This home's token is sent only to its own gateway while that runs. A server elsewhere is asked with `given` or with
    nothing; it may be anybody's.
    """
    own = url_of(config, config.server.port) if config.server.port else None  # else each start takes another one
    url = own if url is None else url
    if url is None:
        raise ConfigError("server.port is 0, so each start takes another port; set it, or give --url")
    url = url.rstrip("/").removesuffix("/v1")
    running = running_url(config)
    runs_here = running is not None and _place(url) == _place(running)
    ours = runs_here or (own is not None and _place(url) == _place(own))
    token = given or "none"
    if not given and runs_here and config.server.auth:
        token = load_or_make_token(config.token_path)
    context, relayed = _limits(config, url, token, ours)
    if ours and not given and config.server.auth and (make_token or config.token_path.exists()):
        token = load_or_make_token(config.token_path)  # only now: nobody there has refused this home
    return Endpoint(url, token, model or MODEL_NAME, context, relayed, ours)


def _place(url: str) -> tuple[str, str, int]:
    """Scheme, host and port, with one name for all of this machine's own. Raises ConfigError."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as e:
        raise ConfigError(f"--url is not an address: {e}") from e
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ConfigError(f"--url is an http:// or https:// address, not {url!r}")
    host = "localhost" if parsed.host in LOOPBACK else parsed.host
    return parsed.scheme, host, parsed.port or (443 if parsed.scheme == "https" else 80)


def _limits(config: Config, url: str, token: str, ours: bool) -> tuple[int | None, bool]:
    """The context and whether an upstream answers: what the server says of itself, else what is known without it.

    That is, at this home's own address, the local engine's, or what the engine says; elsewhere it is what a person set.
    Raises ConfigError where the server refuses the token, and where nobody can be asked.
    """
    headers = {"Authorization": f"Bearer {token}"}
    try:
        response = httpx.get(f"{url}/v1/models", headers=headers, timeout=PATIENCE_S, trust_env=False)
        if response.status_code in (401, 403):
            raise ConfigError(_refusal(config, url, token, ours, response.status_code))
        response.raise_for_status()
        model = response.json()["data"][0]
        told = model.get("max_model_len")
        return None if told is None else int(told), model.get("owned_by") == UPSTREAM
    except httpx.HTTPStatusError as e:
        reason = f"it answers {e.response.status_code}"
    except httpx.HTTPError:
        reason = "nothing answers there"
    except (ValueError, LookupError, TypeError, AttributeError):
        reason = "what answers there is no turnwise"
    silent = f"{url} does not say how much fits into the model ({reason})"
    if not ours:
        if config.engine.upstream_context is None:
            raise ConfigError(
                f"{silent}; start the server there first, then connect the client, or say how much fits with "
                "--set engine.max_model_len=TOKENS"
            )
        return config.engine.upstream_context, False
    found = asyncio.run(context_of(config))
    if found is None and config.engine.kind != "upstream":
        raise ConfigError(
            f"{silent}, and neither does the engine at {', '.join(config.engine.addresses)}; start `turnwise serve` "
            "first, then connect the client"
        )
    return found, config.engine.kind == "upstream"


def _refusal(config: Config, url: str, token: str, ours: bool, status: int) -> str:
    """What a person can do about a server that answers 401 or 403."""
    if ours:
        return (
            f"{url} refuses this home ({status}): what listens there belongs to another home or is no turnwise; stop "
            "it and start `turnwise serve` with this home, or name its home with --home. Nothing was written"
        )
    said = "asks for a token" if token == "none" else "refuses the token"
    return (
        f"{url} {said} ({status}); give the agents' token of that server, which `turnwise token` prints there, "
        "with --token or in the variable TURNWISE_TOKEN. Nothing was written"
    )
