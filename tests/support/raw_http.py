"""A real HTTP server on loopback that plays bytes as told: for answers that no well-behaved server would give."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from turnwise.engines.base import Chunk
from turnwise.engines.events import typed
from turnwise.errors import EngineError

Part = bytes | float
"""Bytes to send, or seconds to be silent."""


@dataclass
class Received:
    """One request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


@dataclass
class Played:
    """A server under way: its address, what it was asked, and how many clients hung up on it."""

    url: str
    received: list[Received]
    hung_up: int = 0


def sse(*events: object, done: bool = True) -> list[Part]:
    """A stream of server-sent events. Its length is not announced: it ends with the connection."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
    parts = [f"data: {json.dumps(event)}\n\n".encode() for event in events]
    return [head, *parts, *([b"data: [DONE]\n\n"] if done else [])]


def answer(status: int, body: bytes | object, kind: str = "application/json", **headers: str) -> list[Part]:
    """A whole answer of a status, with header names whose dashes are written as underscores."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} X", f"content-type: {kind}", f"content-length: {len(content)}", "connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ["\r\n".join(lines).encode() + b"\r\n\r\n", content]


@asynccontextmanager
async def plays(*answers: Sequence[Part]) -> AsyncIterator[Played]:
    """Serve the answers in turn, the last one for ever."""
    played = Played("", [])
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in head[1:] if line)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            number = len(played.received)
            method, path, _ = head[0].split(" ")
            played.received.append(Received(method, path, headers, json.loads(body) if body else None))
            for part in answers[min(number, len(answers) - 1)]:
                if isinstance(part, float):
                    try:
                        await asyncio.wait_for(reader.read(1), part)
                        played.hung_up += 1  # the end of the client's half: it will not say more
                        break
                    except TimeoutError:
                        continue
                writer.write(part)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    played.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield played
    finally:
        server.close()
        for writer in writers:
            writer.close()


async def refused_for_their_form(ask: Callable[[str], Awaitable[list[Chunk]]], events: Iterable[Any]) -> int:
    """How many streams of one event a client refuses for its form; of others it makes chunks or another sentence."""
    refused = 0
    for said in events:
        async with plays(sse(said)) as played:
            try:
                chunks = await ask(played.url)
            except EngineError as e:
                refused += "another form" in str(e)
            else:
                assert all(typed(chunk) for chunk in chunks)
    return refused


WRONG: tuple[Any, ...] = (None, True, 5, -0.5, "x", [], [None], [[]], {}, {"x": []})


def spoiled(said: Any) -> Iterator[Any]:
    """The JSON value again and again, each time with something else in place of one of its parts."""
    yield from WRONG
    inner = said.items() if isinstance(said, dict) else enumerate(said) if isinstance(said, list) else ()
    for key, value in inner:
        for other in spoiled(value):
            copied = said.copy()
            copied[key] = other
            yield copied
