"""What a client has to know of turnwise: where it listens, with which token, and how much fits into the model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import httpx

from turnwise.config import Config
from turnwise.errors import ConfigError
from turnwise.gateway.auth import load_or_make_token
from turnwise.gateway.serving import MODEL_NAME

PROVIDER = "turnwise"
"""The name of our entry in every client's configuration."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`url` is the root, without `/v1`; `context` is the model's longest prompt and answer together, in tokens."""

    url: str
    token: str
    model: str
    context: int

    @property
    def v1(self) -> str:
        return f"{self.url}/v1"

    @property
    def longest_answer(self) -> int:
        """What clients may ask for in one answer: a quarter of the context, so that a prompt still fits."""
        return max(self.context // 4, 1)


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
    context = _ask_context(url, token) or config.engine.max_model_len
    return Endpoint(url, token, model or MODEL_NAME, context)


def _ask_context(url: str, token: str) -> int | None:
    headers = {"Authorization": f"Bearer {token}"}
    try:
        response = httpx.get(f"{url}/v1/models", headers=headers, timeout=3, trust_env=False)
        return int(response.json()["data"][0]["max_model_len"]) if response.status_code == 200 else None
    except (httpx.HTTPError, ValueError, LookupError, TypeError):
        return None


def home_of(environment: dict[str, str]) -> Path:
    """The person's home folder in this environment."""
    return Path(environment.get("HOME") or Path.home())
