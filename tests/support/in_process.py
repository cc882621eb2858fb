"""The gateway's application without sockets, over an engine that answers at once: for thousands of requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from turnwise.access_tokens import Tokens
from turnwise.config import Config
from turnwise.engines.base import Chunk, SamplingParams
from turnwise.gateway.app import make_app
from turnwise.gateway.turn.opening import TurnOpener
from turnwise.gateway.turn.sampling import Answering
from turnwise.gateway.versions import ServingVersions
from turnwise.journal import Journal
from turnwise.pictures.placed import ShownPicture
from turnwise.tokens.rendering import PromptRenderer


class InstantAnswers:
    """An engine that always says the same pieces, one token each, and lets others run between two of them."""

    def __init__(self, pieces: list[str], end_token: int) -> None:
        self.pieces = pieces
        self._end = end_token

    async def max_model_len(self) -> int:
        return 4096

    async def generate(
        self,
        model: str,
        prompt_ids: list[int],
        params: SamplingParams,
        *,
        affinity: str = "",
        pictures: Sequence[ShownPicture] = (),
    ) -> AsyncGenerator[Chunk, None]:
        said = self.pieces[: params.max_tokens]
        for i, piece in enumerate(said):
            await asyncio.sleep(0)
            last = i == len(said) - 1
            finish = None if not last else "stop" if len(said) == len(self.pieces) else "length"
            yield Chunk([self._end if last else i + 1], [-0.5], piece, finish_reason=finish)

    async def load_adapter(self, name: str, path: Path) -> None: ...

    async def unload_adapter(self, name: str) -> None: ...

    async def healthy(self) -> bool:
        return True

    async def close(self) -> None: ...


@dataclass
class InProcess:
    app: FastAPI
    answering: Answering
    journal: Journal

    async def cut(self, path: str, body: bytes, after: int, as_error: bool) -> tuple[str | None, int]:
        """Ask for a stream and go away after that many of its events; gives the turn's id and the events seen.

        A server tells that the client is gone in one of two ways: as a message, or as an error of `send`.
        """
        seen, turn_id, gone = 0, None, asyncio.Event()
        asked = False

        async def receive() -> dict[str, Any]:
            nonlocal asked
            if not asked:
                asked = True
                return {"type": "http.request", "body": body, "more_body": False}
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            nonlocal seen, turn_id
            if message["type"] == "http.response.start":
                turn_id = dict(message["headers"]).get(b"x-turnwise-turn-id", b"").decode()
            elif message["body"]:
                seen += 1
            if seen >= after:
                gone.set()
                if as_error:
                    raise OSError("the client is gone")
            await asyncio.sleep(0)

        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4" if as_error else "2.3"},
            "http_version": "1.1",
            "method": "POST",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "scheme": "http",
            "query_string": b"",
            "headers": [(b"content-type", b"application/json"), (b"host", b"test")],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 2),
            "extensions": {},
        }
        try:
            await self.app(scope, receive, send)
        except Exception as e:  # the server's loop sees it; the client is gone
            if not as_error:
                raise AssertionError("the application failed") from e
        return turn_id, seen


TOKENS = Tokens("tw-agent-0123456789abcdef", "tw-person-0123456789abcdef", "tw-admin-0123456789abcdef")


def open_to(config: Config) -> Config:
    """The same, without a token for what agents do, and with a name for the server that is none."""
    server = config.server.model_copy(update={"auth": False, "allowed_hosts": ("test",)})
    return config.model_copy(update={"server": server})


@asynccontextmanager
async def in_process(config: Config, renderer: PromptRenderer, pieces: list[str]) -> AsyncIterator[InProcess]:
    """The real application over a real journal, open to everyone."""
    journal = Journal.open(config)
    engine = InstantAnswers(pieces, renderer.stop_token_ids[0])
    versions = ServingVersions(journal, engine)
    answering = Answering(journal, engine, renderer, versions)
    opener = TurnOpener(config, journal, renderer, versions, answering.max_model_len)

    @asynccontextmanager
    async def nothing() -> AsyncIterator[None]:
        yield

    try:
        yield InProcess(make_app(open_to(config), opener, answering, TOKENS, nothing), answering, journal)
    finally:
        await answering.drain()
        journal.close()
