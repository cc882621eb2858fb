"""The port of a bench's peer, which takes no socket of ours: nobody else is given it, and the peer can listen there."""

from __future__ import annotations

import asyncio
import socket
import sys

import pytest

from turnwise.bench.latency.litellm_peer import reserved_port


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a port cannot be kept for another program")
async def test_nobody_else_is_given_it_and_a_server_can_listen_there() -> None:
    with reserved_port() as port:
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", port)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b""
        writer.close()
        server.close()
