"""OpenClaw: one provider in `openclaw.json` (JSON5), made the default model. Tools and sandbox stay as they are."""

from __future__ import annotations

from pathlib import Path

from turnwise.agents.endpoint import PROVIDER, Endpoint, home_of
from turnwise.agents.json_text import read, set_value
from turnwise.errors import ConfigError


def file(environment: dict[str, str]) -> Path:
    if environment.get("OPENCLAW_CONFIG_PATH"):
        return Path(environment["OPENCLAW_CONFIG_PATH"])
    folder = environment.get("OPENCLAW_STATE_DIR")
    return (Path(folder) if folder else home_of(environment) / ".openclaw") / "openclaw.json"


def _check_policy(text: str, name: str) -> None:
    """A person's list of allowed models is theirs to change."""
    allow = read(text, ("agents", "defaults", "modelPolicy", "allow"))
    if allow and name not in allow and f"{PROVIDER}/*" not in allow:
        raise ConfigError(f"agents.defaults.modelPolicy.allow leaves out {name}; add {PROVIDER}/* to it first")


def edit(text: str, endpoint: Endpoint) -> str:
    name = f"{PROVIDER}/{endpoint.model}"
    context = {} if endpoint.context is None else {"contextWindow": endpoint.context}
    provider = {
        "baseUrl": endpoint.v1,
        "apiKey": endpoint.token,
        "api": "openai-completions",
        "models": [
            {
                "id": endpoint.model,
                "name": endpoint.model,
                "reasoning": False,
                "input": ["text"],
                **context,
                "maxTokens": endpoint.longest_answer,
                "compat": {"supportsPromptCacheKey": True},  # each request then names its conversation
            }
        ],
    }
    text = set_value(text, ("models", "providers", PROVIDER), provider)
    defaults = ("agents", "defaults")
    if isinstance(read(text, (*defaults, "model")), str):
        text = set_value(text, (*defaults, "model"), name)
    else:
        text = set_value(text, (*defaults, "model", "primary"), name)
    _check_policy(text, name)
    allowed = read(text, (*defaults, "models"))
    if isinstance(allowed, dict) and allowed and name not in allowed:  # where it stands, it lists what may be used
        text = set_value(text, (*defaults, "models", name), {})
    return text
