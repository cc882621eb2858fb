"""The programs as data: where each is installed, how it is started on a task, and what it reads at its start."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from turnwise.agents.endpoint import Endpoint
from turnwise.agents.known import AGENTS
from turnwise.config import cache_dir
from turnwise.errors import ConfigError

HOME = "/tmp/agent"
"""The program's home inside, apart from the task's folder: nothing of it is seen by the verifier."""


@dataclass(frozen=True, slots=True)
class AgentProgram:
    """``folders`` of the cache folder that it needs, its own first. ``words`` start it, before the task and behind it;
    ``before`` is what its configuration has beside the endpoint."""

    name: str
    folders: tuple[str, ...]
    words: tuple[str, ...]
    behind: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    before: str = ""
    memory_mb: int = 1024

    def places(self) -> list[Path]:
        """Where it is installed. Raises ConfigError where it is not."""
        found = [cache_dir() / "clients" / name for name in self.folders]
        if not all((folder / "complete").exists() for folder in found):
            raise ConfigError(f"{self.name} is not installed; `make agents` does it")
        return found

    def command(self, task: str) -> Sequence[str]:
        return [*self.words, task, *self.behind]

    def files(self, endpoint: Endpoint) -> Mapping[str, str]:
        """What it reads, by the way below its home."""
        agent = AGENTS[self.name]
        way = agent.file({"HOME": HOME, **self.variables}).relative_to(HOME)
        edit: Callable[[str, Endpoint], str] = agent.edit
        return {str(way): edit(self.before, endpoint)}


_OPENCLAW = {
    "tools": {"allow": ["exec", "read", "write"], "toolSearch": False},
    "agents": {"defaults": {"contextInjection": "never", "skipBootstrap": True, "workspace": "/box"}},
}
PROGRAMS = {
    each.name: each
    for each in (
        AgentProgram(
            "mini-swe-agent",
            ("mini-swe-agent",),
            ("mini", "--yolo", "--exit-immediately", "--output", f"{HOME}/trajectory.json", "--task"),
            variables={
                "MSWEA_GLOBAL_CONFIG_DIR": f"{HOME}/.config/mini-swe-agent",
                "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "3",
                "MSWEA_SILENT_STARTUP": "1",
                "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else it asks the internet for prices, three times
            },
        ),
        AgentProgram(
            "openclaw",
            ("openclaw", "node"),
            ("openclaw", "agent", "--local", "--session-id", "task", "--json", "--message"),
            before=json.dumps(_OPENCLAW),
            memory_mb=2048,
        ),
        AgentProgram(
            "opencode",
            ("opencode", "node"),
            ("opencode", "run"),
            variables={"OPENCODE_DISABLE_AUTOUPDATE": "1"},
            memory_mb=2048,
        ),
    )
}
