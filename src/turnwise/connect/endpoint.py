"""What a client has to know of turnwise: where it listens, with which token, and how much fits into the model.

Nothing of this is guessed: a limit that is too high makes the engine refuse every request, one that is too low makes a
client throw its history away. Where nobody says how much fits, a client is told only of a modest answer.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import httpx

from turnwise.config import Config
from turnwise.engines.examine import context_of
from turnwise.errors import ConfigError
from turnwise.gateway.auth import load_or_make_token
from turnwise.gateway.serving import MODEL_NAME

PROVIDER = "turnwise"
"""The name of our entry in every client's configuration."""
MODEST_ANSWER = 4096
"""Tokens that a client may ask for in one answer of an upstream, whose limit on answers nobody knows."""
PATIENCE_S = 10.0
"""A server that says how much fits may have to wait for its engine first."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`url` is the root, without `/v1`; `context` is the model's longest prompt and answer together, in tokens.

    It is None where nobody says, as in front of an upstream; `relayed` is whether an upstream answers.
    """

    url: str
    token: str
    model: str
    context: int | None
    relayed: bool = False

    @property
    def v1(self) -> str:
        return f"{self.url}/v1"

    @property
    def longest_answer(self) -> int:
        """What clients may ask for in one answer: a quarter of the context, so that a prompt still fits."""
        if self.context is None:
            return MODEST_ANSWER
        quarter = max(self.context // 4, 1)
        return min(quarter, MODEST_ANSWER) if self.relayed else quarter


def find_endpoint(config: Config, url: str | None, model: str | None, make_token: bool) -> Endpoint:
    """The endpoint of this home; a server that answers is asked for its context length. Raises ConfigError.

    A home without a token gets one with `make_token`; without, the endpoint is only fit to be shown.
    """
    if url is None:
        if config.server.port == 0:
            raise ConfigError("server.port is 0, so each start takes another port; set it, or give --url")
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(config.server.host, config.server.host)
        url = f"http://[{host}]:{config.server.port}" if ":" in host else f"http://{host}:{config.server.port}"
    url = url.rstrip("/").removesuffix("/v1")
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"--url is an http:// or https:// address, not {url!r}")
    token = "none"
    if config.server.auth and (make_token or config.token_path.exists()):
        token = load_or_make_token(config.token_path)
    relayed = config.engine.kind == "upstream"
    return Endpoint(url, token, model or MODEL_NAME, _context(config, url, token), relayed)


def _context(config: Config, url: str, token: str) -> int | None:
    """What the server says of itself, else what is known without it: the local engine's, or what the engine says.

    Raises ConfigError where an engine has a context and neither the server nor the engine can be asked for it.
    """
    headers = {"Authorization": f"Bearer {token}"}
    try:
        response = httpx.get(f"{url}/v1/models", headers=headers, timeout=PATIENCE_S, trust_env=False)
        response.raise_for_status()
        told = response.json()["data"][0].get("max_model_len")
        return None if told is None else int(told)
    except httpx.HTTPStatusError as e:
        reason = f"it answers {e.response.status_code}"
    except httpx.HTTPError:
        reason = "nothing answers there"
    except (ValueError, LookupError, TypeError, AttributeError):
        reason = "what answers there is no turnwise"
    found = asyncio.run(context_of(config))
    if found is None and config.engine.kind != "upstream":
        raise ConfigError(
            f"{url} does not say how much fits into the model ({reason}), and neither does the engine at "
            f"{', '.join(config.engine.addresses)}; start `turnwise serve` first, then connect the client"
        )
    return found


def home_of(environment: dict[str, str]) -> Path:
    """The person's home folder in this environment."""
    return Path(environment.get("HOME") or Path.home())
