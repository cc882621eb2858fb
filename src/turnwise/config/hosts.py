"""Hosts and ports as they stand in settings and in what a sandbox is allowed."""

from __future__ import annotations

from turnwise.errors import SandboxError


def host_and_port(where: str, port: int | None = None) -> tuple[str, int]:
    """The parts of `host:port`; ``port`` where none is named. Raises SandboxError."""
    host, colon, said = where.rpartition(":")
    if not colon and port is not None:
        host, said = where, str(port)
    bare = host.startswith("[") and host.endswith("]")
    host = host.strip("[]").lower().rstrip(".")
    if (
        not host
        or (":" in host) != bare
        or not host.isascii()
        or any(sign in host for sign in "/@?# ")
        or not said.isdecimal()
        or not 1 <= int(said[:6]) <= 65535
    ):
        raise SandboxError(f"{where!r} is no host and port; give them as 127.0.0.1:8377 or example.org:443")
    return host, int(said)


def hosts_and_ports(entry: str) -> list[tuple[str, int]]:
    """An entry of a list of hosts as hosts with their ports: 80 and 443 where it names none. Raises SandboxError."""
    if ":" in entry.removeprefix("["):
        return [host_and_port(entry)]
    return [host_and_port(entry, port) for port in (80, 443)]
