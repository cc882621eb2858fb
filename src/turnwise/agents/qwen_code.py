"""Qwen Code: one OpenAI-compatible model in `settings.json`, with its token in the file's `env` block."""

from __future__ import annotations

from pathlib import Path

from turnwise.agents.endpoint import Endpoint, home_of
from turnwise.agents.json_text import read, set_value
from turnwise.agents.shape import Agent
from turnwise.errors import ConfigError

KEY = "TURNWISE_API_KEY"


def file(environment: dict[str, str]) -> Path:
    return home_of(environment) / ".qwen" / "settings.json"


def edit(text: str, endpoint: Endpoint) -> str:
    context = {} if endpoint.context is None else {"contextWindowSize": endpoint.context}
    answer = {"max_tokens": endpoint.longest_answer}  # else it asks for 32,000 of a model it does not know
    entry = {
        "id": endpoint.model,
        "name": "turnwise",
        "baseUrl": endpoint.v1,
        "envKey": KEY,
        "generationConfig": {**context, "samplingParams": answer},
    }
    models = read(text, ("modelProviders", "openai")) or []
    if not isinstance(models, list):
        raise ConfigError("modelProviders.openai is not a list")
    others = [m for m in models if not (isinstance(m, dict) and m.get("envKey") == KEY)]
    text = set_value(text, ("modelProviders", "openai"), [*others, entry])
    text = set_value(text, ("env", KEY), endpoint.token)
    text = set_value(text, ("security", "auth", "selectedType"), "openai")
    return set_value(text, ("model", "name"), endpoint.model)


AGENT = Agent(file, edit, 'qwen -p "Say hello"', first_prompt={"default": 18277})
