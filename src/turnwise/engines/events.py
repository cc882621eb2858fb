"""Server-sent events of an engine on its own, fast wire: one POST, and the events as they come.

Every token of every answer passes here, and a general HTTP client spends more on each than all the rest of the gateway
together. This one does a single thing: HTTP/1.1 with `httptools`, connections kept open and used again, a limit on
silence. Faults are the same as those of `engines.http`.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections import deque
from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import urlsplit

import httptools
import httpx

from turnwise.engines.http import CONNECT_S, faults, refusal
from turnwise.errors import EngineError, EngineUnreachable

KEPT_OPEN = 256
READ_BYTES = 1 << 16
AFTER_DONE_S = 1.0
"""How long a connection may take to end its answer after the last event, to be used again."""


class EventClient:
    """Posts to one server at `url`. `stall_s` is the longest silence that is waited through."""

    def __init__(self, url: str, stall_s: float) -> None:
        parts = urlsplit(url)
        self._stall_s = stall_s
        self._host = parts.hostname or ""
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._port = parts.port or (443 if self._tls else 80)
        self._base = parts.path.rstrip("/")
        self._name = parts.netloc.rpartition("@")[2]
        self._idle: deque[_Connection] = deque()

    async def post(self, path: str, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """The events of one answer. Closing the iterator hangs up. Raises EngineError and its kinds."""
        content = json.dumps(body, separators=(",", ":")).encode()
        head = (
            f"POST {self._base}{path} HTTP/1.1\r\nHost: {self._name}\r\nContent-Type: application/json\r\n"
            f"Accept: text/event-stream\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        connection, data = await self._ask(head.encode() + content)
        answer = connection.answer
        reusable = False
        try:
            rest = b""
            done = False
            while True:
                lines = (rest + data).split(b"\n")
                rest = lines.pop()
                if answer.status == 200:
                    for line in lines:
                        if line.startswith(b"data:") and not done:
                            event = line[5:].strip()
                            done = event == b"[DONE]"
                            if not done:
                                with faults():
                                    parsed = json.loads(event)
                                yield parsed
                else:
                    rest = b"\n".join([*lines, rest])
                if answer.complete:
                    break
                data = await connection.read(AFTER_DONE_S if done else self._stall_s)
                if data is None:
                    if done:
                        return
                    raise EngineUnreachable("the engine went away in the middle of its answer", 502)
            reusable = answer.keep_alive
            if answer.status != 200:
                raise refusal(httpx.Response(answer.status, headers=answer.headers, content=rest))
        finally:
            if reusable and len(self._idle) < KEPT_OPEN:
                self._idle.append(connection)
            else:
                connection.close()

    async def _ask(self, request: bytes) -> tuple[_Connection, bytes]:
        """Send a request and wait for the first part of its answer, on a connection that is open or a new one.

        A server may close an idle connection at any time. If one that was used before ends without a byte of an
        answer, the request is sent again on a new one.
        """
        while True:
            connection = self._take()
            fresh = connection is None
            if connection is None:
                connection = await self._connect()
            try:
                connection.send(request)
                data = b""
                while data is not None and not connection.answer.begun:
                    data = await connection.read(self._stall_s)
            except BaseException:
                connection.close()
                raise
            if data is not None:
                return connection, data
            connection.close()
            if fresh or connection.answer.seen:
                raise EngineUnreachable("the engine went away before it answered", 502)

    def _take(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.ended():
                return connection
            connection.close()
        return None

    async def _connect(self) -> _Connection:
        try:
            async with asyncio.timeout(CONNECT_S):
                streams = await asyncio.open_connection(self._host, self._port, ssl=self._tls, limit=READ_BYTES * 4)
        except (OSError, TimeoutError) as e:
            raise EngineUnreachable(f"the engine cannot be reached: {type(e).__name__}", 502) from e
        return _Connection(*streams)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()


class _Answer:
    """What `httptools` tells of one answer."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body: list[bytes] = []
        self.seen = self.begun = self.complete = self.keep_alive = False
        self._parser = httptools.HttpResponseParser(self)

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self.begun = True

    def on_body(self, body: bytes) -> None:
        self.body.append(body)

    def on_message_complete(self) -> None:
        self.complete = True
        self.keep_alive = self._parser.should_keep_alive()

    def parse(self, data: bytes) -> bytes:
        """The part of the body that these bytes of the wire hold."""
        self.seen = True
        self._parser.feed_data(data)
        body = b"".join(self.body)
        self.body.clear()
        return body


class _Connection:
    """One open connection and the answer that is being read from it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.answer = _Answer()

    def send(self, request: bytes) -> None:
        self.answer = _Answer()
        self._writer.write(request)

    async def read(self, limit_s: float) -> bytes | None:
        """The next part of the body, or None where the server has closed the connection."""
        try:
            async with asyncio.timeout(limit_s):
                data = await self._reader.read(READ_BYTES)
        except TimeoutError:
            raise EngineError("the engine was silent for too long", 504) from None
        except OSError:
            return None
        if not data:
            return self._end()
        try:
            return self.answer.parse(data)
        except httptools.HttpParserError as e:
            raise EngineError(f"the engine sent something that is not HTTP: {e}", 502) from e

    def _end(self) -> bytes | None:
        """An answer without a length ends with its connection; any other is cut off."""
        framed = {"content-length", "transfer-encoding"} & self.answer.headers.keys()
        if self.answer.begun and not framed and not self.answer.complete:
            self.answer.complete = True
            return b""
        return None

    def ended(self) -> bool:
        return self._reader.at_eof() or self._writer.is_closing()

    def close(self) -> None:
        self._writer.close()
