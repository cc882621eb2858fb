"""Fires shots at a server over real sockets, several connections at once, and says what it made of each.

A client that reads HTTP by itself, kept small so that a hundred thousand requests take minutes: status line, length or
chunks. Each shot has a deadline; what is not answered by then is a hang.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tests.attacks.shots import Shot

DEADLINE_S = 60.0
"""Longest wait for one answer: it only tells an answer from a hang, on a machine that others use, too."""
LINGER_S = 0.02
"""How long the client of a request that is not whole waits before it goes away."""
WAIT_S = 0.3
"""How long an answer to what need not be HTTP is waited for."""
DELIBERATE = (503, 507)
"""What the server may say above 499: an engine or a disk that is full."""


@dataclass
class Seen:
    """Statuses by kind of shot, and what must not be."""

    statuses: Counter[tuple[str, int | str]] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    fired: int = 0

    def summary(self) -> str:
        return ", ".join(f"{kind}: {status} × {n}" for (kind, status), n in sorted(self.statuses.items(), key=str))


class Closed(Exception):
    """The server closed the connection."""


@dataclass
class Connection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.writer.transport.abort()


async def fire(port: int, shots: Iterable[tuple[int, Shot]], clients: int = 12, stop_at: int = 20) -> Seen:
    """All of them, each once (or twice at once); ends early when so many went wrong."""
    seen = Seen()
    queue = iter(shots)

    async def client() -> None:
        kept: Connection | None = None
        for number, shot in queue:
            if len(seen.faults) >= stop_at:
                break
            if shot.twice:
                others = [_one(port, number, shot, seen, None) for _ in range(2)]
                for connection in await asyncio.gather(*others):
                    _drop(connection)
            else:
                kept = await _one(port, number, shot, seen, kept)
            seen.fired += 1
        _drop(kept)

    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client())
    return seen


def _drop(connection: Connection | None) -> None:
    if connection is not None:
        connection.close()


async def _one(port: int, number: int, shot: Shot, seen: Seen, kept: Connection | None) -> Connection | None:
    """Gives the connection back where it can be used again."""
    if shot.raw or shot.leave_at is not None or shot.leave_after is not None:
        _drop(kept)
        kept = None
    fault: Callable[[str], None] = lambda text: seen.faults.append(f"shot {number} ({shot.kind}): {text}")  # noqa: E731
    connection = kept
    try:
        async with asyncio.timeout(DEADLINE_S):
            for last in (False, True):
                connection = connection or Connection(*await asyncio.open_connection("127.0.0.1", port, limit=2**24))
                try:
                    again = await _exchange(connection, shot, seen, fault)
                    return connection if again else _drop(connection)
                except (Closed, ConnectionError, asyncio.IncompleteReadError):
                    fresh = connection is not kept
                    _drop(connection)
                    connection = None
                    if fresh or last:  # a kept one may have been closed meanwhile: ask again on a new one
                        seen.statuses[shot.kind, "closed"] += 1
                        if not shot.raw and shot.leave_at is None:
                            fault("the server closed the connection without an answer")
                        return None
    except TimeoutError:
        seen.statuses[shot.kind, "hang"] += 1
        fault("no answer in time")
        _drop(connection)
    return None


async def _exchange(connection: Connection, shot: Shot, seen: Seen, fault: Callable[[str], None]) -> bool:
    """Send, read, judge; says whether the connection can be used again."""
    reader, writer = connection.reader, connection.writer
    writer.write(shot.data if shot.leave_at is None else shot.data[: shot.leave_at])
    if shot.leave_at is not None:
        await asyncio.sleep(LINGER_S)
        seen.statuses[shot.kind, "left"] += 1
        return False
    if shot.leave_after is not None:
        await reader.read(shot.leave_after)
        seen.statuses[shot.kind, "left"] += 1
        return False
    if shot.half_closed:
        with contextlib.suppress(OSError):
            writer.write_eof()  # no more will come, and an answer would still be read
    if shot.raw:
        return await _maybe(reader, shot, seen, fault)
    status, headers, body = await _read(reader, shot.data.startswith(b"HEAD "))
    seen.statuses[shot.kind, status] += 1
    judge(shot, status, headers, body, fault)
    return headers.get(b"connection", b"").lower() != b"close"


async def _maybe(reader: asyncio.StreamReader, shot: Shot, seen: Seen, fault: Callable[[str], None]) -> bool:
    """An answer to what need not be HTTP, if one comes: the server may also wait for more of it."""
    try:
        async with asyncio.timeout(WAIT_S):
            status, headers, body = await _read(reader, False)
    except TimeoutError:
        seen.statuses[shot.kind, "waits for more"] += 1
        return False
    seen.statuses[shot.kind, status] += 1
    judge(shot, status, headers, body, fault)
    return False


def judge(shot: Shot, status: int, headers: dict[bytes, bytes], body: bytes, fault: Callable[[str], None]) -> None:
    """What must be true of every answer."""
    if status >= 500 and status not in DELIBERATE:
        fault(f"{status} {body[:300]!r}")
    if b"internal_error" in body or b"something failed inside" in body:
        fault(f"something failed inside: {body[-300:]!r}")
    if (b"Traceback" in body and b"Traceback" not in shot.data) or b"\nevil" in headers.get(
        b"x-turnwise-session-id", b""
    ):
        fault(f"it tells too much: {body[:300]!r}")
    if status >= 400 and not shot.raw and headers.get(b"content-type", b"").startswith(b"application/json") and body:
        try:
            if not json.loads(body)["error"]["message"]:
                fault(f"{status} without a word")
        except (ValueError, KeyError, TypeError):
            fault(f"{status} in no known shape: {body[:300]!r}")


async def _read(reader: asyncio.StreamReader, head_only: bool) -> tuple[int, dict[bytes, bytes], bytes]:
    """One answer: status, headers in small letters, body."""
    head = b""
    status = 100
    while status == 100:  # "100 Continue" comes before the answer
        head = await reader.readuntil(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
    headers = {k.lower(): v for k, _, v in (line.partition(b": ") for line in head.split(b"\r\n")[1:] if line)}
    if head_only or status in (204, 304):
        return status, headers, b""
    if headers.get(b"transfer-encoding") == b"chunked":
        parts = []
        while size := int(await reader.readuntil(b"\r\n"), 16):
            parts.append((await reader.readexactly(size + 2))[:-2])
        await reader.readexactly(2)
        return status, headers, b"".join(parts)
    if b"content-length" not in headers:
        return status, headers | {b"connection": b"close"}, await reader.read()
    return status, headers, await reader.readexactly(int(headers[b"content-length"]))
