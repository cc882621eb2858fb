"""Server-sent events of an engine: one POST, and the events as they come, over connections that stay open.

Every token of every answer passes here. With httpx this took more of the gateway's time than all its other work
together; aiohttp takes a fraction of that (docs/decisions/0005). Events that arrive together are given together: a
gateway that falls behind its engine does its work per token once for several. Faults are those of `engines.http`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import Any

import aiohttp
import httpx

from turnwise.engines.base import Chunk
from turnwise.engines.http import AWAY, CONNECT_S, ON_A_SOCKET, bearer, faults, refusal, socket_path, without_key
from turnwise.errors import EngineError, EngineUnreachable

LONGEST_EVENT = 1 << 22
"""Bytes of one event that are taken; nothing grows without end."""


@contextmanager
def in_the_form_of(api: str) -> Iterator[None]:
    """What an event makes its reader stumble over, as one sentence: it is not as `api` has them. Raises EngineError."""
    try:
        yield
    except (TypeError, AttributeError, LookupError, ValueError) as e:
        raise EngineError(f"the engine sent an event of another form than {api} has", 502) from e


def typed(chunk: Chunk) -> Chunk:
    """The chunk, if what it holds is of the types that it says. Raises TypeError."""
    if not all(type(token) is int for token in chunk.token_ids):
        raise TypeError("a token id that is no integer")
    if not all(isinstance(value, (int, float)) for value in chunk.logprobs or ()):
        raise TypeError("a log-prob that is no number")
    if not isinstance(chunk.text, str) or not isinstance(chunk.finish_reason, str | None):
        raise TypeError("a text that is none")
    if not isinstance(chunk.cached_tokens, int | None):
        raise TypeError("a count that is none")
    return chunk


class EventClient:
    """Posts to one server at `url`. `stall_s` is the longest silence that is waited through.

    With an `api_key`, each request carries it as a bearer token. Redirects are not followed: it goes nowhere else.
    """

    def __init__(self, url: str, stall_s: float, api_key: str | None = None) -> None:
        self._socket = socket_path(url)
        self._url = url.rstrip("/") if self._socket is None else ON_A_SOCKET
        self._api_key = api_key
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=stall_s)
        self._session: aiohttp.ClientSession | None = None

    async def post(self, path: str, body: dict[str, Any] | bytes) -> AsyncGenerator[list[dict[str, Any]], None]:
        """The events of one answer, as many at once as have arrived. Closing the iterator hangs up.

        Raises EngineError and its kinds, after the events that came before the fault.
        """
        content = body if isinstance(body, bytes) else json.dumps(body, separators=(",", ":")).encode()
        started = False
        try:
            async with await self._ask(path, content) as response:
                started = True
                if response.status != 200:
                    refused = await response.read()
                    told = httpx.Response(response.status, headers=_told(response), content=refused)
                    raise refusal(told, self._api_key)
                lines = _Lines()
                async for data in _pieces(response.content):
                    events, fault = [], None
                    try:
                        for event in lines.feed(data):
                            with faults():
                                said = json.loads(event if b'"error"' not in event else self._fit(event))
                            if not isinstance(said, dict):
                                raise EngineError("the engine sent an event that is no JSON object", 502)
                            events.append(said)
                    except EngineError as e:
                        fault = e
                    if events:
                        yield events
                    if fault is not None:
                        raise fault
                    if lines.done:
                        await response.read()  # the end of the body, so that the connection can be used again
                        return
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as e:
            raise EngineUnreachable(f"the engine cannot be reached: {type(e).__name__}", 502) from e
        except TimeoutError:
            if self._socket is not None and not started:  # it lay in the socket's queue
                raise EngineUnreachable(AWAY, 504) from None
            raise EngineError("the engine was silent for too long", 504) from None
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, ConnectionError) as e:
            when = "in the middle of its answer" if started else "before it answered"
            raise EngineUnreachable(f"the engine went away {when}", 502) from e
        except (aiohttp.ClientError, ValueError) as e:
            raise EngineError(f"the engine sent something that is not HTTP: {type(e).__name__}", 502) from e

    def _fit(self, event: bytes) -> str:
        return without_key(event.decode(), self._api_key)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _ask(self, path: str, content: bytes) -> aiohttp.ClientResponse:
        """Send a request and wait for the head of its answer.

        A server may close an idle connection at any time, even while a request is on its way to it. Then no byte of an
        answer came, and the request is sent once more.
        """
        if self._session is None:
            # The waits of `_timeout` are the only limits: a hundred answers may be under way.
            where = self._socket
            connector = aiohttp.TCPConnector(limit=0) if where is None else aiohttp.UnixConnector(where, limit=0)
            self._session = aiohttp.ClientSession(
                connector=connector,
                timeout=self._timeout,
                read_bufsize=LONGEST_EVENT,
                headers={"Content-Type": "application/json", "Accept": "text/event-stream"} | bearer(self._api_key),
            )
        try:
            return await self._session.post(self._url + path, data=content, allow_redirects=False)
        except aiohttp.ClientConnectorError:
            raise  # there was no connection to close
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
            return await self._session.post(self._url + path, data=content, allow_redirects=False)


def _told(response: aiohttp.ClientResponse) -> dict[str, str]:
    """The headers that tell of a refusal. Those of its encoding no longer hold: aiohttp gives the body decoded."""
    return {name: response.headers[name] for name in ("content-type", "retry-after") if name in response.headers}


async def _pieces(content: aiohttp.StreamReader) -> AsyncGenerator[bytes, None]:
    async for data in content.iter_any():
        yield data
    yield b"\n"  # the last line may have no end


class _Lines:
    """Cuts the body into the data of its events. ``done`` once `[DONE]` has come."""

    def __init__(self) -> None:
        self.done = False
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        *whole, self._rest = (self._rest + data).split(b"\n")
        for line in whole:
            if line.startswith(b"data:") and not self.done:
                event = line[5:].strip()
                if event == b"[DONE]":
                    self.done = True
                else:
                    yield event
        if len(self._rest) > LONGEST_EVENT:
            raise EngineError("the engine sent an event that is too long", 502)
