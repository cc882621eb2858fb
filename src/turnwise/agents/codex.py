"""Codex CLI: one model provider in `config.toml`. It speaks the responses API alone; approvals stay as they are."""

from __future__ import annotations

from pathlib import Path

from turnwise.agents.endpoint import PROVIDER, Endpoint, home_of
from turnwise.agents.shape import Agent, Habits
from turnwise.agents.texts import set_toml


def file(environment: dict[str, str]) -> Path:
    folder = environment.get("CODEX_HOME")
    return (Path(folder) if folder else home_of(environment) / ".codex") / "config.toml"


def edit(text: str, endpoint: Endpoint) -> str:
    provider = ("model_providers", PROVIDER)
    return set_toml(
        text,
        {
            ("model",): endpoint.model,
            ("model_provider",): PROVIDER,
            ("model_context_window",): endpoint.context,
            (*provider, "name"): "turnwise",
            (*provider, "base_url"): endpoint.v1,
            (*provider, "wire_api"): "responses",
            (*provider, "experimental_bearer_token"): endpoint.token,
        },
    )


AGENT = Agent(
    file,
    edit,
    'codex exec "Say hello"',
    first_prompt={"default": 8796},
    # Its sub-agents share its session-id and have a thread-id of their own.
    habits=Habits(
        session_headers=("thread-id", "session-id", "session_id"),
        unasked_tools=frozenset({"web_search"}),
        blocks=frozenset({"environment_context", "user_instructions"}),
        item_marks=frozenset({"internal_chat_message_metadata_passthrough", "encrypted_function_args"}),
    ),
)
