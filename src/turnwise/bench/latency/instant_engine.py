"""The engine of the latency bench: answers at once, in a process of its own, for as little processor time as it can.

It speaks vLLM's token-id completions (for turnwise) and OpenAI's chat completions (for everybody else), both streamed,
one write a token as from a real engine, and takes every adapter. It never looks into what it is asked, so its share of
a measurement is small and the same for everyone. `python -m turnwise.bench.latency.instant_engine PIECES` prints its
port.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from typing import Any, cast

import uvloop

from turnwise.patterns import IGNORECASE, pattern

MAX_MODEL_LEN = 1_000_000
_LENGTH = pattern(rb"\r\ncontent-length: *(\d+)", IGNORECASE)


class InstantEngine(asyncio.Protocol):
    """One HTTP/1.1 connection, kept alive. `answers` maps a request line's start to the writes that answer it."""

    def __init__(self, answers: dict[bytes, list[bytes]]) -> None:
        self._answers = answers
        self._head = bytearray()
        self._body_left: int | None = None
        self._answer: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by its type

    def data_received(self, data: bytes) -> None:
        if self._body_left is None:
            self._head += data
            end = self._head.find(b"\r\n\r\n")
            if end < 0:
                return
            head, data = bytes(self._head[:end]), bytes(self._head[end + 4 :])
            self._head.clear()
            length = _LENGTH.search(head)
            self._body_left = int(length.group(1)) if length else 0
            self._answer = next((a for start, a in self._answers.items() if head.startswith(start)), NOT_FOUND)
        self._body_left -= len(data)
        if self._body_left <= 0:
            self._body_left = None
            self._write(0)

    def _write(self, i: int) -> None:
        """One piece, and the next one after whatever else is due: so no token waits for another connection's last."""
        if self._transport.is_closing():
            return
        self._transport.write(self._answer[i])
        if i + 1 < len(self._answer):
            asyncio.get_running_loop().call_soon(self._write, i + 1)


def _plain(status: str, body: Any) -> list[bytes]:
    data = json.dumps(body).encode()
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    return [head.encode() + data]


NOT_FOUND = _plain("404 Not Found", {"error": {"message": "the instant engine has no such route"}})


def _stream(events: list[dict[str, Any]]) -> list[bytes]:
    lines = [f"data: {json.dumps(event, separators=(',', ':'))}\n\n".encode() for event in events]
    chunks = [b"%x\r\n%b\r\n" % (len(line), line) for line in [*lines, b"data: [DONE]\n\n"]]
    chunks[-1] += b"0\r\n\r\n"
    chunks[0] = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n" + chunks[0]
    return chunks


def completions(pieces: list[tuple[int, str]]) -> list[bytes]:
    """vLLM's stream for these (token id, text) pairs."""
    head = {"id": "cmpl-bench", "object": "text_completion", "created": int(time.time()), "model": "base"}
    events = [
        head
        | {
            "choices": [
                {
                    "index": 0,
                    "text": text,
                    "token_ids": [token],
                    "logprobs": {
                        "tokens": [text],
                        "token_logprobs": [-0.125 * (i + 1)],
                        "top_logprobs": [None],
                        "text_offset": [0],
                    },
                    "finish_reason": "stop" if i == len(pieces) - 1 else None,
                    "stop_reason": None,
                }
            ]
        }
        for i, (token, text) in enumerate(pieces)
    ]
    return _stream(events)


def chat(pieces: list[tuple[int, str]]) -> list[bytes]:
    """OpenAI's stream for the same answer."""
    head = {"id": "chatcmpl-bench", "object": "chat.completion.chunk", "created": int(time.time()), "model": "turnwise"}
    deltas: list[tuple[dict[str, str], str | None]] = [({"role": "assistant", "content": ""}, None)]
    deltas += [({"content": text}, None) for _, text in pieces if text]
    deltas.append(({}, "stop"))
    return _stream([head | {"choices": [{"index": 0, "delta": d, "finish_reason": f}]} for d, f in deltas])


async def serve(pieces: list[tuple[int, str]]) -> None:
    models = {
        "data": [{"id": name, "object": "model", "max_model_len": MAX_MODEL_LEN} for name in ("base", "turnwise")]
    }
    answers = {
        b"POST /v1/completions": completions(pieces),
        b"POST /v1/chat/completions": chat(pieces),
        b"GET /v1/models": _plain("200 OK", models),
        b"POST /v1/load_lora_adapter": _plain("200 OK", {}),
        b"POST /v1/unload_lora_adapter": _plain("200 OK", {}),
        b"GET /health": _plain("200 OK", {}),
    }
    server = await asyncio.get_running_loop().create_server(
        lambda: InstantEngine(answers), "127.0.0.1", 0, backlog=1024
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description="an engine that answers at once, to measure what stands before it")
    parser.add_argument("pieces", help="the answer as JSON: [[token id, text], …]")
    pieces = [(int(token), str(text)) for token, text in json.loads(parser.parse_args().pieces)]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(pieces))


if __name__ == "__main__":
    main()
