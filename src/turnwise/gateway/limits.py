"""What a connection may cost before anything of it is understood: bytes and time of a request's head, the pace of its
body, requests in a row, and how many connections there are, in all and from one address.

It stands below the application, in uvicorn's protocol, since half a request never reaches an application. It reads no
header and knows no token. A request pays for it with a few assignments: one timer looks at all connections.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import resource
from collections import Counter
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from turnwise.config import ServerConfig

PIECE = 16 * 1024
"""Bytes that are parsed before they are looked at again."""
MAX_HEADERS = 200
"""Headers of one request. Each costs some twenty times its bytes, so their number counts as well as their size."""
MAX_PIPELINED = 32
"""Requests that may wait behind the one being answered."""
SLOWEST_BODY = 2000
"""Bytes per second that a body must bring, beside `header_timeout_s`."""
UNREAD_S = 120.0
"""How long an answer may wait for a client that reads nothing of it."""
CLOSING_S = 10.0
"""How long a connection that we closed may go without taking any of its last bytes."""
KEPT_S = 75
"""How long a connection may wait for its next request. Clients that keep one for 5 seconds must not meet its end."""
YOUNG_S = 1.0
"""A connection that has waited for less is not given up for another one."""
FILES_BESIDE = 256
"""Open files beside the clients' connections and one to the engine for each: the journal, the log."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes, times in seconds."""

    head_bytes: int
    head_s: float
    body_bytes: int
    connections: int
    per_address: int

    @classmethod
    def of(cls, server: ServerConfig) -> Limits:
        return cls(
            head_bytes=server.max_header_kb * 1024,
            head_s=server.header_timeout_s,
            body_bytes=int(server.max_body_mb * 1_000_000),
            connections=server.max_connections,
            per_address=min(server.max_connections_per_address, server.max_connections),
        )


class Door:
    """All connections of one server, counted, and the clock that ends those that keep it waiting."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.inside: set[LimitedProtocol] = set()
        self._from: Counter[str] = Counter()
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0

    def protocol(self) -> type[LimitedProtocol]:
        """The class that uvicorn makes a connection of."""
        return type("ProtocolAtThisDoor", (LimitedProtocol,), {"door": self})

    def enter(self, one: LimitedProtocol, loop: asyncio.AbstractEventLoop) -> str | None:
        """Let it in, or say why not. One that has kept us waiting longest for its request makes room for it."""
        for many, most, beside, setting in (
            (self._from[one.address], self.limits.per_address, one.address, "server.max_connections_per_address"),
            (len(self.inside), self.limits.connections, None, "server.max_connections"),
        ):
            if many >= most and not self._make_room(loop.time(), beside):
                return f"there are {many} connections already ({setting}); close some, and try again in a moment"
        self.inside.add(one)
        self._from[one.address] += 1
        if self._timer is None:
            self._again(loop)
        return None

    def leave(self, one: LimitedProtocol) -> None:
        if one in self.inside:
            self.inside.remove(one)
            self._from[one.address] -= 1
            if not self._from[one.address]:
                del self._from[one.address]

    def _make_room(self, now: float, address: str | None) -> bool:
        waiting = [p for p in self.inside if p.owes_bytes() and address in (None, p.address)]
        oldest = min(waiting, key=lambda p: p.since, default=None)
        if oldest is None or now - oldest.since < YOUNG_S:
            return False
        self.leave(oldest)
        oldest.abort()
        return True

    def _again(self, loop: asyncio.AbstractEventLoop) -> None:
        wait = min(1.0, self.limits.head_s / 4)
        self._due = loop.time() + wait
        self._timer = loop.call_later(wait, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        late = now - self._due  # while the loop stood still, what clients sent could not be read
        for one in list(self.inside):
            if late > YOUNG_S:
                one.since += late
            one.look(now)
        self._timer = None
        if self.inside:
            self._again(loop)


class Phase(Enum):
    """What a connection is doing."""

    IDLE = auto()  # nothing of a request is here
    HEAD = auto()
    BODY = auto()
    ANSWER = auto()  # all of the request is here


class LimitedProtocol(HttpToolsProtocol):
    """uvicorn's protocol, which refuses with 408, 413, 431 or 503 and closes, or only closes within an answer."""

    door: Door

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.address = ""
        self.phase = Phase.IDLE
        self.since = 0.0
        self._moved = False
        self._quiet = 0  # bytes since something of a request was last understood
        self._sent = 0  # bytes of this request behind its head
        self._unread_since: float | None = None
        self._closing_since: float | None = None
        self._unwritten = 0  # bytes that the client had not taken when it was last looked at
        self._kept = False  # it had an answer before
        self._refusal: tuple[int, str] | None = None

    # -- connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.address = _address(transport.get_extra_info("peername"))
        self.since = self.loop.time()
        refused = self.door.enter(self, self.loop)
        if refused is None:
            super().connection_made(transport)
            return
        self.transport = transport
        self._refuse(503, refused)

    def connection_lost(self, exc: Exception | None) -> None:
        self.door.leave(self)
        super().connection_lost(exc)

    def owes_bytes(self) -> bool:
        """Whether it is the client's turn to send, and no answer is under way."""
        return self.phase is not Phase.ANSWER and not self._answering()

    def abort(self) -> None:
        self.transport.abort()

    def look(self, now: float) -> None:
        """End a connection that keeps us waiting for too long."""
        limits = self.door.limits
        unwritten = self.transport.get_write_buffer_size()
        if unwritten < self._unwritten:  # slow, but it reads
            self._closing_since = None
            self._unread_since = None if self._unread_since is None else now
        self._unwritten = unwritten
        if self.transport.is_closing():
            self._closing_since = self._closing_since or now
            if now - self._closing_since > CLOSING_S:
                self.abort()
        elif self._unread_since is not None and now - self._unread_since > UNREAD_S:
            self.abort()
        elif self.flow.read_paused:
            self.since = now  # it is we who do not read
        elif self.phase is Phase.IDLE and not self._answering() and now - self.since > self._idle_s():
            self.transport.close()
        elif self.phase is Phase.HEAD and now - self.since > limits.head_s:
            self._refuse(408, f"the headers took longer than {limits.head_s:g} s (server.header_timeout_s)")
        elif self.phase is Phase.BODY and now - self.since > limits.head_s + self._sent / SLOWEST_BODY:
            self._refuse(408, "the body came too slowly, or did not come at all")

    def _idle_s(self) -> float:
        return max(KEPT_S, self.door.limits.head_s) if self._kept else self.door.limits.head_s

    # -- bytes

    def data_received(self, data: bytes) -> None:
        if len(data) <= PIECE:
            self._take(data)
            return
        for start in range(0, len(data), PIECE):
            if self.transport.is_closing():
                return
            self._take(data[start : start + PIECE])

    def _take(self, piece: bytes) -> None:
        if self.transport.is_closing():
            return
        limits = self.door.limits
        self._moved = False
        super().data_received(piece)
        if not self._moved:
            self._quiet += len(piece)
        if self._quiet > limits.head_bytes or len(self.headers or ()) > MAX_HEADERS:  # trailers count, too
            self._refuse(*self._too_large())
        elif self.phase is Phase.BODY:
            self._sent += len(piece)
            if self._sent > 2 * limits.body_bytes + limits.head_bytes:  # what is too large is first told so, and read
                self._refuse(413, "the request body is too large (server.max_body_mb)")

    def _too_large(self) -> tuple[int, str]:
        size = self.door.limits.head_bytes // 1024
        return 431, f"the headers are more than {size} KB (server.max_header_kb) or more than {MAX_HEADERS}"

    # -- what the parser tells

    def _move(self, phase: Phase) -> None:
        self.phase = phase
        self.since = self.loop.time()
        self._moved = True
        self._quiet = self._sent = 0

    def on_message_begin(self) -> None:
        self._move(Phase.HEAD)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        size = sum(len(name) + len(value) + 4 for name, value in self.headers) + len(self.url)
        if size > self.door.limits.head_bytes or len(self.headers) > MAX_HEADERS:
            self._refusal = self._too_large()
        elif len(self.pipeline) >= MAX_PIPELINED:
            self._refusal = 429, f"more than {MAX_PIPELINED} requests wait on one connection"
        if self._refusal is not None:
            raise ValueError(self._refusal[1])  # the parser stops, and `send_400_response` is called
        self._move(Phase.BODY)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._moved = True
        self._quiet = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._move(Phase.IDLE if self.cycle.response_complete else Phase.ANSWER)

    def on_response_complete(self) -> None:
        self._kept = True
        super().on_response_complete()
        if self.phase is Phase.ANSWER and self.cycle.response_complete:
            self._move(Phase.IDLE)

    def _unsupported_upgrade_warning(self) -> None:
        """Nothing is upgraded: the request is answered as it is, and what follows it is not read."""
        if self.cycle is not None:
            self.cycle.keep_alive = False

    # -- what the transport tells

    def pause_writing(self) -> None:
        self._unread_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._unread_since = None
        super().resume_writing()

    # -- refusals

    def send_400_response(self, msg: str) -> None:
        self._refuse(*(self._refusal or (400, msg)))

    def _answering(self) -> bool:
        return bool(self.pipeline) or (self.cycle is not None and not self.cycle.response_complete)

    def _refuse(self, status: int, message: str) -> None:
        """Say why, unless that would stand in the middle of an answer, and close."""
        if self.phase is Phase.BODY:
            silent = not self.pipeline and not self.cycle.response_started
        else:
            silent = not self._answering()
        if silent and not self.transport.is_closing():
            self.transport.write(_refusal(status, message))
        self.transport.close()


def raise_file_limit(limits: Limits) -> None:
    """Let this process open as many files as its connections may need, as far as the system allows."""
    needed = 2 * limits.connections + FILES_BESIDE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))


KINDS = {503: "service_unavailable_error", 408: "timeout_error", 429: "rate_limit_error"}
REASONS = {
    400: "Bad Request",
    408: "Request Timeout",
    413: "Content Too Large",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


def _refusal(status: int, message: str) -> bytes:
    error = {"message": message, "type": KINDS.get(status, "invalid_request_error"), "param": None, "code": None}
    body = json.dumps({"error": error}).encode()
    lines = [f"HTTP/1.1 {status} {REASONS[status]}", "content-type: application/json", f"content-length: {len(body)}"]
    lines += ["retry-after: 1"] if status == 503 else []
    return "\r\n".join([*lines, "connection: close", "", ""]).encode() + body


def _address(peer: Any) -> str:
    """Where a connection comes from: an IPv4 address, the first half of an IPv6 one, or nothing for a Unix socket."""
    if not isinstance(peer, tuple):
        return ""
    address = ipaddress.ip_address(str(peer[0]).partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return address.exploded[:19] if not address.is_loopback else "127.0.0.1"
    return str(address)
