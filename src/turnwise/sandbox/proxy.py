"""A small HTTP proxy with a list of hosts: no other can be reached, and a name on it leads to no private address.

It carries `CONNECT host:port` and plain requests with a whole address in them. It opens nothing that is encrypted:
which host a connection is for is what its client asked for, and so the list holds hosts and ports, not pages.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterable
from http import HTTPStatus
from urllib.parse import urlsplit

from turnwise.config.hosts import host_and_port, hosts_and_ports
from turnwise.errors import SandboxError
from turnwise.sandbox.carrying import relay

HEAD_S = 30.0
"""Longest wait for a whole head, of at most 64 KiB."""
_DROPPED = ("host", "connection", "keep-alive", "upgrade")
_GREETING = b"HTTP/1.1 200 Connected\r\n\r\n"


class HostList:
    """Serves connections to the hosts that were named. Raises SandboxError for an entry that names none."""

    def __init__(self, hosts: Iterable[str]) -> None:
        self._known = {pair for host in hosts for pair in hosts_and_ports(host)}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read what is asked for, and carry it there or refuse it."""
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HEAD_S)
            method, host, port, way, headers = _read_head(head.decode("latin-1"))
            if (host, port) not in self._known:
                return _refuse(writer, 403, f"{host}:{port} is not on the list of hosts that may be reached")
            address = await asyncio.wait_for(_address(host, port), HEAD_S)
            if method == "CONNECT":
                return await relay(reader, writer, address, port, greeting=_GREETING)
            lines = [f"{method} {way} HTTP/1.1", f"Host: {host}:{port}", "Connection: close", *headers, "", ""]
            return await relay(reader, writer, address, port, first="\r\n".join(lines).encode("latin-1"))
        except asyncio.LimitOverrunError:
            return _refuse(writer, 431, "the head of the request is too long")
        except SandboxError as e:
            return _refuse(writer, 400, str(e))
        except (ConnectionRefusedError, socket.gaierror, TimeoutError) as e:
            return _refuse(writer, 502, f"the host cannot be reached: {e}")


def _read_head(head: str) -> tuple[str, str, int, str, list[str]]:
    """Method, host, port, way and the headers that are passed on. Raises SandboxError."""
    first, *lines = head.split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[0].isalpha() or not words[2].startswith("HTTP/1."):
        raise SandboxError("this is a proxy: ask for a whole address, as GET http://example.org/ HTTP/1.1")
    method, target, _ = words
    if method == "CONNECT":
        return (method, *host_and_port(target), "", [])
    try:
        parts = urlsplit(target)
        where = parts.netloc.rpartition("@")[2]
    except ValueError:
        raise SandboxError("the address of the request cannot be read") from None
    if parts.scheme != "http":
        raise SandboxError("only http:// is asked for with a whole address, https:// with CONNECT")
    host, port = host_and_port(where, None if where.rpartition(":")[2].isdecimal() and ":" in where else 80)
    kept = [line for line in lines if line and _name(line) not in _DROPPED and not _name(line).startswith("proxy-")]
    return method, host, port, (parts.path or "/") + (f"?{parts.query}" if parts.query else ""), kept


def _name(line: str) -> str:
    return line.partition(":")[0].strip().lower()


async def _address(host: str, port: int) -> str:
    """The address of a host. A name that was put on the list as a name of the world must not lead into this machine or
    its network, whatever its owner says; whoever means that puts the address itself, or `localhost`, on the list."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [str(each[4][0]) for each in found]
    if host == "localhost" or _is_address(host):
        return addresses[0]
    public = [each for each in addresses if ipaddress.ip_address(each.partition("%")[0]).is_global]
    if not public:
        raise SandboxError(f"{host} is a name for a private address, {', '.join(addresses)[:200]}, which stays closed")
    return public[0]


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _refuse(writer: asyncio.StreamWriter, status: int, said: str) -> None:
    body = f"{said}\n".encode("utf-8", "replace")
    head = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", "Content-Type: text/plain; charset=utf-8"]
    head += [f"Content-Length: {len(body)}", "Connection: close", "", ""]
    writer.write("\r\n".join(head).encode() + body)
