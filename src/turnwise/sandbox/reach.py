"""The few ways out of a sandbox that were named: one service of this machine, or the proxy with its list of hosts.

Inside there is a network of its own that leads nowhere. A short-lived helper enters it, opens listening sockets there
and hands them out to us: who is inside connects to its own loopback, and the other end is in this process. Nothing of
ours runs inside, and no other address leads anywhere.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from functools import cache
from typing import Any, TypeVar

from turnwise.errors import SandboxError
from turnwise.sandbox.carrying import CONNECT_S, relay
from turnwise.sandbox.limits import PROXY_PORT, TRY_S, Allowed
from turnwise.sandbox.proxy import HostList

MOST_CONNECTIONS = 64
"""Of one sandbox at a time; a further one is closed."""

_HELPER = """
import ctypes, errno, fcntl, os, socket, sys, time
NS_GET_USERNS, NEWUSER, NEWNET = 0xB701, 0x10000000, 0x40000000
network = os.open(f"/proc/{sys.argv[1]}/ns/net", os.O_RDONLY)
libc = ctypes.CDLL(None, use_errno=True)
if os.geteuid() != 0 and libc.setns(fcntl.ioctl(network, NS_GET_USERNS), NEWUSER):
    raise OSError(ctypes.get_errno(), "the user namespace cannot be entered")
if libc.setns(network, NEWNET):
    raise OSError(ctypes.get_errno(), "the network namespace cannot be entered")
def listening(port):
    for left in reversed(range(500)):
        try:
            return socket.create_server(("127.0.0.1", port), backlog=64)
        except OSError as e:
            if e.errno != errno.EADDRNOTAVAIL or not left:
                raise
            time.sleep(0.01)
sockets = [listening(int(port)) for port in sys.argv[2:]]
socket.send_fds(socket.socket(fileno=0), [b"x"], [one.fileno() for one in sockets])
"""

T = TypeVar("T")
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class WaysOut:
    """The listening sockets inside one sandbox, and what stands behind them. Raises SandboxError."""

    def __init__(self, inner: int, allowed: Allowed) -> None:
        """``inner``: the id, outside, of a process that is inside."""
        behind = {port: _relay_to(host, at) for port, (host, at) in allowed.ports().items()}
        if allowed.hosts:
            behind[PROXY_PORT] = HostList(allowed.hosts).serve
        sockets = _sockets_inside(inner, list(behind))
        self._under_way: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []
        for one, handler in zip(sockets, behind.values(), strict=True):
            self._servers.append(_soon(asyncio.start_server(self._counted(handler), sock=one)))

    def close(self) -> None:
        """Close the sockets and all connections."""
        _soon(self._close())

    def _counted(self, handler: Handler) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
        def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if len(self._under_way) >= MOST_CONNECTIONS:
                writer.transport.abort()
                return
            task = asyncio.ensure_future(_served(handler, reader, writer))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

        return serve

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)


async def _served(handler: Handler, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        await handler(reader, writer)
        await asyncio.wait_for(writer.drain(), CONNECT_S)
        writer.close()
    except (OSError, TimeoutError, asyncio.LimitOverrunError, asyncio.IncompleteReadError):
        writer.transport.abort()  # as a network does where the other side is gone
    finally:
        if not writer.is_closing():
            writer.transport.abort()


def _relay_to(host: str, port: int) -> Handler:
    return lambda reader, writer: relay(reader, writer, host, port)


def _sockets_inside(inner: int, ports: list[int]) -> list[socket.socket]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(TRY_S)
        command = [sys.executable, "-I", "-S", "-c", _HELPER, str(inner), *map(str, ports)]
        try:
            done = subprocess.run(command, stdin=theirs.fileno(), capture_output=True, env={}, timeout=TRY_S)
        except (OSError, subprocess.TimeoutExpired) as e:
            raise SandboxError(f"no way out of the sandbox can be opened: {e}") from e
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
            raise SandboxError(f"no way out of the sandbox can be opened: {said[:300]}")
        _, descriptors, _, _ = socket.recv_fds(ours, 1, len(ports))
    return [socket.socket(fileno=descriptor) for descriptor in descriptors]


def _soon(work: Coroutine[Any, Any, T]) -> T:
    """Do a piece of work in that loop, and wait for it."""
    return asyncio.run_coroutine_threadsafe(work, _loop_of(os.getpid())).result(TRY_S)


@cache
def _loop_of(process: int) -> asyncio.AbstractEventLoop:
    """One event loop for all sandboxes of a process, in a thread of its own."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="ways out of sandboxes", daemon=True).start()
    return loop
