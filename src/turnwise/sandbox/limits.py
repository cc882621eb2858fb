"""What an agent's commands may use, what of the machine they are given, and how one of them ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from turnwise.config.hosts import host_and_port
from turnwise.errors import SandboxError

INSIDE = "/box"
"""Where the folder stands for those who are inside."""
TRY_S = 20.0
"""Longest wait for a sandbox to begin, and for what was killed to be gone."""
PROXY_PORT = 3128
"""Where the proxy listens inside."""

Stop = Literal["time", "memory", "processes", "output", "disk"]


@dataclass(frozen=True, slots=True)
class BoxLimits:
    """What one command may use. ``memory_mb``, ``processes``, ``cores`` and ``disk_mb`` hold for all of its processes
    together, and in a shell that lasts for all that were started in it."""

    seconds: float = 30.0
    memory_mb: int = 512
    processes: int = 64
    file_mb: int = 64
    disk_mb: int = 256
    entries: int = 20_000
    """Files and folders."""
    output_kb: int = 256
    """A command that says more is ended."""
    cores: float = 1.0
    """Held where control groups can be made."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """What those inside are given beside the machine's programs. Nothing, unless it is named.

    ``reach``: services of this machine by a name, as `{"gateway": "127.0.0.1:8377"}`; each is reached from inside at
    `127.0.0.1` and its own port. ``hosts``: hosts that the proxy inside leads to, as `example.org:443`; without a port
    80 and 443 are meant. ``sees``: files and folders of the machine by the place inside where they can be read.
    """

    reach: Mapping[str, str] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()
    sees: Mapping[str, Path] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_network(self) -> bool:
        return bool(self.reach or self.hosts)

    def ports(self) -> dict[int, tuple[str, int]]:
        """What of the machine stands behind each port inside. Raises SandboxError."""
        found: dict[int, tuple[str, int]] = {}
        for name, where in self.reach.items():
            host, port = host_and_port(where)
            if not name.isascii() or not name.replace("-", "").isalnum():
                raise SandboxError(f"{name!r} is no name of a service; use letters, digits and -")
            if port in found or (self.hosts and port == PROXY_PORT):
                raise SandboxError(f"the port {port} inside the sandbox is asked for twice; {name} needs another one")
            found[port] = (host, port)
        return found


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended: its status, what it said (both streams), and the limit that ended it, if one did.

    ``restarted``: of a shell that lasts, whether it ended with the command, so that the next one begins in a new one.
    """

    status: int
    output: bytes
    stopped_by: Stop | None
    seconds: float
    restarted: bool = False
