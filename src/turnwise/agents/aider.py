"""aider: three keys of `.aider.conf.yml` in the home folder.

It says "Ok." to itself in the model's name: in the examples before a conversation, and behind answers whose edits it
has committed. It needs no entry here: an answer that stood in the request already is known to be the client's own.
"""

from __future__ import annotations

from pathlib import Path

from turnwise.agents.endpoint import Endpoint, home_of
from turnwise.agents.shape import Agent
from turnwise.agents.texts import set_yaml


def file(environment: dict[str, str]) -> Path:
    return home_of(environment) / ".aider.conf.yml"


def edit(text: str, endpoint: Endpoint) -> str:
    values = {
        "model": f"openai/{endpoint.model}",
        "openai-api-base": endpoint.v1,
        "openai-api-key": endpoint.token,
    }
    return set_yaml(text, values)


AGENT = Agent(file, edit, 'aider --message "Say hello"')
