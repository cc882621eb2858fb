"""The stream client over raw sockets: what servers do to a connection, byte by byte, and what becomes of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager

import pytest

from turnwise.engines.events import EventClient
from turnwise.errors import EngineError, EngineUnreachable, UnknownModel

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


WHOLE = HEAD + chunk(b'data: {"n": 1}\n\n') + chunk('data: {"n": "ü"}\n\ndata: [DONE]\n\n'.encode()) + chunk(b"")
EVENTS = [{"n": 1}, {"n": "ü"}]


async def take_request(reader: asyncio.StreamReader) -> bool:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(h.split(b":")[1]) for h in head.split(b"\r\n") if h.lower().startswith(b"content-length"))
        await reader.readexactly(length)
    except asyncio.IncompleteReadError:
        return False
    return True


@asynccontextmanager
async def server(handler: Handler, stall_s: float = 5.0) -> AsyncIterator[tuple[EventClient, list[int]]]:
    """A client of a server that runs `handler` on every connection; the list counts connections."""
    opened: list[int] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened.append(1)
        try:
            await handler(reader, writer)
        finally:
            writer.close()

    listening = await asyncio.start_server(connected, "127.0.0.1", 0)
    client = EventClient(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", stall_s)
    try:
        yield client, opened
    finally:
        await client.close()
        listening.close()


async def ask(client: EventClient) -> list[object]:
    return [event async for events in client.post("/v1/completions", {"prompt": [1, 2]}) for event in events]


async def keep_answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while await take_request(reader):
        writer.write(WHOLE)


async def test_a_connection_is_used_again() -> None:
    async with server(keep_answering) as (client, opened):
        assert [await ask(client) for _ in range(5)] == [EVENTS] * 5
        assert len(opened) == 1


@pytest.mark.parametrize("size", [1, 2, 7, 64])
async def test_an_answer_may_come_in_any_pieces(size: int) -> None:
    async def dribble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await take_request(reader)
        for at in range(0, len(WHOLE), size):
            writer.write(WHOLE[at : at + size])
            await writer.drain()
            await asyncio.sleep(0)

    async with server(dribble) as (client, _):
        assert await ask(client) == EVENTS


async def test_an_idle_connection_that_the_server_closed_is_no_fault() -> None:
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await take_request(reader)
        writer.write(WHOLE)
        await writer.drain()

    async with server(once) as (client, opened):
        for _ in range(3):
            assert await ask(client) == EVENTS
        assert len(opened) == 3


async def test_a_reused_connection_that_ends_without_a_byte_is_replaced() -> None:
    async def answers_once_then_hangs_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await take_request(reader)
        writer.write(WHOLE)
        await take_request(reader)  # reads the second request and says nothing

    async with server(answers_once_then_hangs_up) as (client, opened):
        assert await ask(client) == EVENTS
        assert await ask(client) == EVENTS
        assert len(opened) == 2


async def test_a_stream_that_is_cut_is_unreachable_and_what_came_was_given() -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await take_request(reader)
        writer.write(HEAD + chunk(b'data: {"n": 1}\n\n'))
        await writer.drain()

    async with server(cut) as (client, _):
        got = []
        with pytest.raises(EngineUnreachable):
            async for events in client.post("/x", {}):
                got += events
        assert got == [{"n": 1}]


async def test_events_that_arrive_together_are_given_together_and_before_the_fault_behind_them() -> None:
    async def at_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await take_request(reader)
        writer.write(HEAD + chunk(b'data: {"n": 1}\n\ndata: {"n": 2}\n\ndata: {"n": \n\ndata: {"n": 4}\n\n'))
        await writer.drain()

    async with server(at_once) as (client, _):
        got = []
        with pytest.raises(EngineError, match="JSON"):
            async for events in client.post("/x", {}):
                got.append(events)
        assert got == [[{"n": 1}, {"n": 2}]]


async def test_the_last_event_needs_no_line_break() -> None:
    async def unfinished(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await take_request(reader)
        writer.write(HEAD + chunk(b'data: {"n": 1}\n\ndata: {"n": 2}') + b"0\r\n\r\n")
        await writer.drain()

    async with server(unfinished) as (client, _):
        assert await ask(client) == [{"n": 1}, {"n": 2}]


async def test_an_event_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnwise.engines.events.LONGEST_EVENT", 64)

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await take_request(reader)
        writer.write(HEAD + chunk(b"data: " + b"x" * 100))
        await writer.drain()

    async with server(endless) as (client, _):
        with pytest.raises(EngineError, match="too long"):
            await ask(client)


async def test_silence_garbage_and_refusals_are_told_apart() -> None:
    async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await take_request(reader)
        await asyncio.sleep(5)

    async with server(silent, stall_s=0.1) as (client, _):
        with pytest.raises(EngineError, match="silent") as caught:
            await ask(client)
        assert caught.value.status == 504
    for said, kind, status in (
        (b"SSH-2.0-OpenSSH\r\n", EngineError, 502),
        (HEAD + chunk(b"data: {no json\n\n"), EngineError, 502),
        (
            b"HTTP/1.1 404 Not Found\r\ncontent-length: 27\r\n\r\n" + b'{"error":{"message":"gone"}}'[:27],
            UnknownModel,
            404,
        ),
        (b"HTTP/1.1 429 Too Many\r\nretry-after: 7\r\ncontent-length: 4\r\n\r\nbusy", EngineError, 429),
        (b"", EngineUnreachable, 502),
    ):

        async def says(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, said: bytes = said) -> None:
            await take_request(reader)
            writer.write(said)
            await writer.drain()

        async with server(says) as (client, _):
            with pytest.raises(kind) as caught:
                await ask(client)
            assert caught.value.status == status, said


async def test_closing_the_iterator_hangs_up() -> None:
    gone = asyncio.Event()

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await take_request(reader)
        writer.write(HEAD)
        try:
            while not reader.at_eof():
                writer.write(chunk(b'data: {"n": 1}\n\n'))
                await writer.drain()
                await asyncio.sleep(0.01)
        finally:
            gone.set()

    async with server(endless) as (client, _):
        async with aclosing(client.post("/x", {})) as events:
            async for _events in events:
                break
        await asyncio.wait_for(gone.wait(), 5)
    assert gone.is_set()


async def test_nobody_there_is_unreachable() -> None:
    async with server(keep_answering) as (client, _):
        pass
    with pytest.raises(EngineUnreachable, match="reached"):
        await ask(client)
