"""Real HTTP servers on loopback for tests: an app in a thread of its own, reached over a real socket."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from turnwise.journal import Journal


class QuickServer(uvicorn.Server):
    """Looks ten times as often whether it is to end."""

    async def main_loop(self) -> None:
        while not await self.on_tick(0):  # noqa: ASYNC110 - uvicorn has no event to wait for
            await asyncio.sleep(0.01)


@contextmanager
def running(app: Any, port: int = 0, **options: Any) -> Iterator[str]:
    """Serve an ASGI app until the block ends; gives its URL. `options` are uvicorn's."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", port))
    server = QuickServer(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=2, **options))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
    thread.start()
    deadline = time.monotonic() + 20
    while not server.started:
        assert time.monotonic() < deadline, "the test server did not start"
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=10)
        sock.close()


def wait_until(condition: Any, limit_s: float = 20.0) -> Any:
    """Poll until `condition()` is truthy and give its value; fail after the limit."""
    deadline = time.monotonic() + limit_s
    while not (value := condition()):
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)
    return value


ROUNDED_BY_S = 0.06
"""How much longer ago a loop may have spoken than the status says, which has tenths of a second."""


def wait_until_said(journal: Journal, loop: str, since: float, limit_s: float = 20.0) -> None:
    """Wait for what a loop says of itself after `since`, a value of `time.monotonic()`."""

    def said() -> bool:
        now = time.monotonic()
        last = journal.status.last(loop)
        return last is not None and last[1] + ROUNDED_BY_S < now - since

    wait_until(said, limit_s)
