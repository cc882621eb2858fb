"""Which clients can be connected, where each keeps its configuration, and how its text changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from turnwise.agents import aider, claude_code, codex, mini_swe_agent, openclaw, opencode, qwen_code
from turnwise.agents.endpoint import Endpoint


@dataclass(frozen=True, slots=True)
class Agent:
    """`file` gives the configuration file for an environment, `edit` its text with the endpoint in it."""

    file: Callable[[dict[str, str]], Path]
    edit: Callable[[str, Endpoint], str]
    try_it: str


CLIENTS: dict[str, Agent] = {
    "openclaw": Agent(openclaw.file, openclaw.edit, 'openclaw agent exec "Say hello"'),
    "opencode": Agent(opencode.file, opencode.edit, 'opencode run "Say hello"'),
    "codex": Agent(codex.file, codex.edit, 'codex exec "Say hello"'),
    "claude-code": Agent(claude_code.file, claude_code.edit, 'claude -p "Say hello"'),
    "qwen-code": Agent(qwen_code.file, qwen_code.edit, 'qwen -p "Say hello"'),
    "aider": Agent(aider.file, aider.edit, 'aider --message "Say hello"'),
    "mini-swe-agent": Agent(mini_swe_agent.file, mini_swe_agent.edit, 'mini -t "Say hello"'),
}
