"""opencode: one provider in its global `opencode.json` (or `.jsonc`), made the default model."""

from __future__ import annotations

from pathlib import Path

from turnwise.agents.endpoint import PROVIDER, Endpoint, home_of
from turnwise.agents.json_text import set_value
from turnwise.agents.shape import Agent, Habits, SideKind


def file(environment: dict[str, str]) -> Path:
    if environment.get("OPENCODE_CONFIG"):
        return Path(environment["OPENCODE_CONFIG"])
    base = environment.get("XDG_CONFIG_HOME")
    folder = (Path(base) if base else home_of(environment) / ".config") / "opencode"
    commented = folder / "opencode.jsonc"
    return commented if commented.exists() else folder / "opencode.json"


def edit(text: str, endpoint: Endpoint) -> str:
    limit = {"context": endpoint.context or 0, "output": endpoint.longest_answer}  # 0: not known
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "turnwise",
        "options": {"baseURL": endpoint.v1, "apiKey": endpoint.token},
        "models": {endpoint.model: {"name": endpoint.model, "limit": limit}},
    }
    text = set_value(text, ("provider", PROVIDER), provider)
    return set_value(text, ("model",), f"{PROVIDER}/{endpoint.model}")


AGENT = Agent(
    file,
    edit,
    'opencode run "Say hello"',
    first_prompt={"default": 7587},
    # It asks for a title in words that chat apps use as well, and puts what it is of into a message behind them.
    habits=Habits(session_headers=("x-opencode-session",), in_first_of_two=frozenset({SideKind.TITLE})),
)
