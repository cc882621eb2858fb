"""The section `[environments]`: what holds the commands of agents that play tasks, and how many wait ready."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from turnwise.config.hosts import host_of_any_port, hosts_and_ports
from turnwise.config.sections import Seconds, Section
from turnwise.errors import SandboxError

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

    failing_hosts: int = Field(
        default=3,
        ge=0,
        description="Rollouts that a host of the web fails in a row, after which it is left out; 0: none is.",
    )
    failing_hosts_rest_s: Seconds = Field(default=3600.0, description="How long such a host is left out.")
    left_out_hosts: list[str] = Field(
        default_factory=list,
        description="Hosts of the web at which no rollout ever begins, as `example.org`, `example.org:8080`, "
        "`*.example.org`.",
    )

    @field_validator("hosts")
    @classmethod
    def _hosts_alone(cls, hosts: list[str]) -> list[str]:
        for host in hosts:
            try:
                hosts_and_ports(host)
            except SandboxError:
                raise ValueError(f"{host!r} is no host; write it as 'example.org' or 'example.org:443'") from None
        return hosts

    @field_validator("left_out_hosts")
    @classmethod
    def _names_alone(cls, hosts: list[str]) -> list[str]:
        for host in hosts:
            try:
                host_of_any_port(host)
            except SandboxError:
                raise ValueError(f"{host!r} is no host; write it as 'example.org' or '*.example.org'") from None
        return hosts

    @model_validator(mode="after")
    def _hosts_need_bubblewrap(self) -> EnvironmentsConfig:
        if self.hosts and self.sandbox in ("docker", "podman"):
            raise ValueError(f"environments.hosts needs bubblewrap: {self.sandbox} opens no way out of a sandbox")
        return self
