"""Claude Code: the `env` block of its `settings.json`. It speaks Anthropic's messages API; permissions stay."""

from __future__ import annotations

import json
from pathlib import Path

from turnwise.agents.endpoint import Endpoint, home_of
from turnwise.agents.json_text import read, set_value
from turnwise.agents.shape import Agent, Habits
from turnwise.errors import ConfigError


def file(environment: dict[str, str]) -> Path:
    folder = environment.get("CLAUDE_CONFIG_DIR")
    return (Path(folder) if folder else home_of(environment) / ".claude") / "settings.json"


def edit(text: str, endpoint: Endpoint) -> str:
    if text.strip() and read(text, ("env", "ANTHROPIC_API_KEY")) is not None:
        raise ConfigError("its env block has ANTHROPIC_API_KEY, which goes before the token; take it out first")
    values = {
        "ANTHROPIC_BASE_URL": endpoint.url,
        "ANTHROPIC_AUTH_TOKEN": endpoint.token,
        "ANTHROPIC_MODEL": endpoint.model,
        "ANTHROPIC_DEFAULT_OPUS_MODEL": endpoint.model,
        "ANTHROPIC_DEFAULT_SONNET_MODEL": endpoint.model,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": endpoint.model,
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(endpoint.longest_answer),
    }
    context = "CLAUDE_CODE_MAX_CONTEXT_TOKENS"
    if endpoint.context is not None:
        values[context] = str(endpoint.context)  # else it takes 1 M for a model it does not know
    elif text.strip() and read(text, ("env", context)) is not None:
        values[context] = "0"  # another model's does not hold any more; 0 is as good as none
    for key, value in values.items():
        text = set_value(text, ("env", key), value)
    return text


def session_in_user(user: str) -> str | None:
    """The session in `metadata.user_id`: a key of JSON, or what stands behind `_session_`."""
    if not user.startswith("{"):
        return user.partition("_session_")[2] or None
    try:
        return json.loads(user).get("session_id")
    except (ValueError, RecursionError):
        return None


AGENT = Agent(
    file,
    edit,
    'claude -p "Say hello"',
    first_prompt={"default": 12307},
    habits=Habits(
        session_headers=("x-claude-code-session-id",),
        sub_agent_header="x-claude-code-agent-id",
        session_in_user=session_in_user,
        blocks=frozenset({"system-reminder"}),
    ),
)
