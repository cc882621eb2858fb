"""Hosts and ports as they stand in settings and in what a sandbox is allowed."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

from turnwise.errors import SandboxError

_USUAL = {"http": 80, "https": 443}


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


def host_of_any_port(entry: str) -> tuple[str, int | None]:
    """An entry as `example.org`, `example.org:8080` or `*.example.org`, which is every host below: its name, of the
    last one with its dot, and its port; None: all of them. Raises SandboxError."""
    below, bare = entry.startswith("*."), entry.removeprefix("*.")
    if "*" in bare:
        raise SandboxError(f"{entry!r} has a star that does not stand for all in front of a dot")
    if ":" in bare.rpartition("]")[2]:
        host, port = host_and_port(bare)
    else:
        (host, _), port = host_and_port(f"{bare}:1"), None
    return f".{host}" if below else host, port


def is_named(url: str, entries: Iterable[str]) -> bool:
    """Whether the host of an address is one of these, each as `host_of_any_port` takes it."""
    parts = urlsplit(url)
    host, port = (parts.hostname or "").rstrip("."), parts.port or _USUAL.get(parts.scheme.lower())
    for entry in entries:
        name, of = host_of_any_port(entry)
        if of in (None, port) and (host.endswith(name) if name.startswith(".") else host == name):
            return True
    return False
