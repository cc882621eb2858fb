"""The section `[environments]`: what holds the commands of agents that play tasks, and how many wait ready."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from turnwise.config.sections import Section

SandboxKind = Literal["auto", "bubblewrap", "docker", "podman"]


class EnvironmentsConfig(Section):
    """Environments that `turnwise rollout` hosts (see environments.md)."""

    sandbox: SandboxKind = Field(
        default="auto",
        description="What holds agents' commands. `auto`: bubblewrap, and where that does not work docker or podman.",
    )
    image: str = Field(default="debian:stable-slim", description="Image of docker or podman; it is never fetched.")
    hosts: list[str] = Field(
        default_factory=list,
        description="Hosts that agents may reach, as `example.org:443`; without a port 80 and 443. Default: none.",
    )
    warm: int = Field(
        default=0, ge=0, le=64, description="Environments that are made ahead; each takes memory while it waits."
    )
