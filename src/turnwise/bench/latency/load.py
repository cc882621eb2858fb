"""The clients of the latency bench: many connections, each sending its next request when its last is answered.

Bytes are written and read as they are and only searched for the first and last token and the end: a few microseconds a
token. What this costs is measured with the same run straight to the engine.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import cast

import uvloop

from turnwise.patterns import pattern

_TOKEN = pattern(rb'"content": ?"[^"]')
_END = b"\r\n0\r\n\r\n"
DRAIN_S = 90.0
"""How long requests that are under way when the time is up may still take."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go. `headers` are whole lines without their line ends."""

    port: int
    path: str = "/v1/chat/completions"
    headers: tuple[str, ...] = ()

    def request(self, body: bytes) -> bytes:
        lines = [f"POST {self.path} HTTP/1.1", f"Host: 127.0.0.1:{self.port}", "Content-Type: application/json"]
        lines += [*self.headers, f"Content-Length: {len(body)}", "", ""]
        return "\r\n".join(lines).encode() + body


@dataclass(slots=True)
class LoadResult:
    """What was seen: per request the seconds to the first token and per further token; failures by what was said."""

    seconds: float = 0.0
    generator_cpu: float = 0.0
    first: list[float] = field(default_factory=list)
    per_token: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def requests_per_second(self) -> float:
        return len(self.first) / self.seconds if self.seconds else 0.0


class _Client(asyncio.Protocol):
    """One connection and the person behind it."""

    def __init__(self, target: Target, bodies: Iterator[bytes], tokens: int, until: float, load: LoadResult) -> None:
        self._target, self._bodies, self._tokens, self._until, self._load = target, bodies, tokens, until, load
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by its type
        self._send()

    def _send(self) -> None:
        request = self._target.request(next(self._bodies))
        self._status = b""
        self._tail = b""
        self._first = self._last = 0.0
        self._sent = time.perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        self._status = self._status or data[:400]
        if _TOKEN.search(data):
            self._first = self._first or now
            self._last = now
        self._tail = (self._tail + data)[-len(_END) :]
        if self._tail == _END or not self._status.startswith(b"HTTP/1.1 200"):
            self._answered(now)

    def _answered(self, now: float) -> None:
        if not self._first:
            self._stop(self._status.decode(errors="replace"))
            return
        self._load.first.append(self._first - self._sent)
        self._load.per_token.append((self._last - self._first) / (self._tokens - 1))
        self._load.seconds = now
        if now < self._until:
            self._send()
        else:
            self._stop(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop(f"the connection was lost: {exc}")

    def _stop(self, failure: str | None) -> None:
        if not self.done.done():
            if failure is not None:
                self._load.failures.append(failure)
            self.done.set_result(None)
            self._transport.close()


async def _drive(target: Target, bodies: Iterable[bytes], clients: int, tokens: int, seconds: float) -> LoadResult:
    load = LoadResult()
    loop = asyncio.get_running_loop()
    started = time.perf_counter()
    cpu = time.process_time()
    open_clients = [
        (
            await loop.create_connection(
                lambda: _Client(target, iter(bodies), tokens, started + seconds, load), "127.0.0.1", target.port
            )
        )[1]
        for _ in range(clients)
    ]
    _, late = await asyncio.wait([client.done for client in open_clients], timeout=seconds + DRAIN_S)
    load.failures += ["not answered in time"] * len(late)
    load.seconds -= started
    load.generator_cpu = time.process_time() - cpu
    return load


def drive(target: Target, bodies: Iterable[bytes], *, clients: int, tokens: int, seconds: float) -> LoadResult:
    """Let `clients` ask for `seconds` and wait for their last answers. `tokens` is the length of every answer."""
    gc.collect()
    gc.disable()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_drive(target, bodies, clients, tokens, seconds))
    finally:
        gc.enable()
