"""Which clients can be connected, where each keeps its configuration, and how its text changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from turnwise.agents import aider, claude_code, codex, mini_swe_agent, openclaw, opencode, qwen_code
from turnwise.connect.endpoint import Endpoint


@dataclass(frozen=True, slots=True)
class Client:
    """`file` gives the configuration file for an environment, `edit` its text with the endpoint in it."""

    file: Callable[[dict[str, str]], Path]
    edit: Callable[[str, Endpoint], str]
    try_it: str


CLIENTS: dict[str, Client] = {
    "openclaw": Client(openclaw.file, openclaw.edit, 'openclaw agent exec "Say hello"'),
    "opencode": Client(opencode.file, opencode.edit, 'opencode run "Say hello"'),
    "codex": Client(codex.file, codex.edit, 'codex exec "Say hello"'),
    "claude-code": Client(claude_code.file, claude_code.edit, 'claude -p "Say hello"'),
    "qwen-code": Client(qwen_code.file, qwen_code.edit, 'qwen -p "Say hello"'),
    "aider": Client(aider.file, aider.edit, 'aider --message "Say hello"'),
    "mini-swe-agent": Client(mini_swe_agent.file, mini_swe_agent.edit, 'mini -t "Say hello"'),
}
