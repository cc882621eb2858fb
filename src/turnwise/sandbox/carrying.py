"""Carries the bytes of one connection on to an address, both ways, with a limit on every wait."""

from __future__ import annotations

import asyncio

CONNECT_S = 20.0
IDLE_S = 900.0
"""Longest silence on a connection: a model may think for long before its first word."""
_READ = 64 << 10


async def relay(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    host: str,
    port: int,
    first: bytes = b"",
    greeting: bytes = b"",
) -> None:
    """Connect to an address and carry bytes until both sides have ended. ``first`` goes there before all others, and
    ``greeting`` to the one who asked once there is a connection. Raises OSError, TimeoutError."""
    there, back = await asyncio.wait_for(asyncio.open_connection(host, port), CONNECT_S)
    try:
        back.write(first)
        writer.write(greeting)
        ways = [asyncio.ensure_future(_carry(*way)) for way in ((reader, back), (there, writer))]
        try:
            await asyncio.gather(*ways)
        finally:
            for way in ways:
                way.cancel()
    finally:
        back.transport.abort()


async def _carry(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
    while part := await asyncio.wait_for(source.read(_READ), IDLE_S):
        to.write(part)
        await asyncio.wait_for(to.drain(), IDLE_S)
    if to.can_write_eof():
        to.write_eof()
