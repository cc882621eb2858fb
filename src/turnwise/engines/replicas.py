"""Several servers of one model as one engine: a session stays on its replica, and a replica that is down is passed by.

Rendezvous hashing ranks the replicas for a session, so that one that comes or goes moves only its own sessions. An
answer is asked for elsewhere only while no token of it was sent. Adapters are loaded on every replica; one that was
away gets what it missed when it is next asked for it.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TypeVar

from turnwise.engines.base import Chunk, Engine, SamplingParams
from turnwise.errors import EngineError, EngineUnreachable, UnknownModel
from turnwise.pictures.placed import ShownPicture

log = logging.getLogger(__name__)

T = TypeVar("T")

AVOID_S = 5.0
"""How long a replica that could not be reached is asked last."""


def ranked(key: str, urls: Sequence[str]) -> list[str]:
    """The replicas in the order in which `key` prefers them: each by a hash of its own with the key."""
    return sorted(urls, key=lambda url: hashlib.sha256(f"{key}\n{url}".encode()).digest())


class Replicas:
    """`servers` maps the address of each replica to its client; there must be one at least."""

    def __init__(self, servers: dict[str, Engine], clock: Callable[[], float] = time.monotonic) -> None:
        self.servers = servers
        self._clock = clock
        self._avoid: dict[str, float] = {}
        self._running: Counter[str] = Counter()
        self._adapters: dict[str, Path] = {}
        self._max_model_len: int | None = None

    async def max_model_len(self) -> int:
        """The shortest context of those replicas that answer."""
        if self._max_model_len is None:
            found = await self._everywhere(lambda server: server.max_model_len())
            self._max_model_len = min(found)
        return self._max_model_len

    def order(self, affinity: str) -> list[str]:
        """Replicas in the order they are asked. Without an affinity, the one with the fewest requests comes first."""
        urls = ranked(affinity, list(self.servers))
        if not affinity:
            urls.sort(key=lambda url: self._running[url])
        now = self._clock()
        return sorted(urls, key=lambda url: self._avoid.get(url, now) > now)

    async def generate(
        self,
        model: str,
        prompt_ids: list[int],
        params: SamplingParams,
        *,
        affinity: str = "",
        pictures: Sequence[ShownPicture] = (),
    ) -> AsyncGenerator[Chunk, None]:
        urls = self.order(affinity)
        for url in urls:
            started = False
            try:
                async with aclosing(self._on(url, model, prompt_ids, params, pictures)) as chunks:
                    async for chunk in chunks:
                        started = True
                        yield chunk
                return
            except EngineError as e:
                gone = isinstance(e, EngineUnreachable)
                if gone:
                    self._avoid[url] = self._clock() + AVOID_S
                if started or url == urls[-1] or not (gone or e.status == 503):
                    raise
                log.warning("replica %s: %s; the next one is asked", url, e)

    async def _on(
        self, url: str, model: str, prompt_ids: list[int], params: SamplingParams, pictures: Sequence[ShownPicture]
    ) -> AsyncGenerator[Chunk, None]:
        """The answer of one replica, which is given the adapter first when it does not know it."""
        server = self.servers[url]
        self._running[url] += 1
        try:
            for attempt in (1, 2):
                try:
                    async with aclosing(server.generate(model, prompt_ids, params, pictures=pictures)) as chunks:
                        async for chunk in chunks:
                            yield chunk
                    return
                except UnknownModel:
                    if attempt == 2 or model not in self._adapters:
                        raise
                    await server.load_adapter(model, self._adapters[model])
        finally:
            self._running[url] -= 1

    async def load_adapter(self, name: str, path: Path) -> None:
        """Load everywhere. Replicas that cannot be reached get the adapter later; a refusal by any is an error."""
        await self._everywhere(lambda server: server.load_adapter(name, path))
        self._adapters[name] = path

    async def unload_adapter(self, name: str) -> None:
        self._adapters.pop(name, None)
        await self._everywhere(lambda server: server.unload_adapter(name))

    async def healthy(self) -> bool:
        return any(await asyncio.gather(*(server.healthy() for server in self.servers.values())))

    async def close(self) -> None:
        await asyncio.gather(*(server.close() for server in self.servers.values()))

    async def _everywhere(self, ask: Callable[[Engine], Awaitable[T]]) -> list[T]:
        """The answers of all replicas that can be reached. Raises what any of them refused with."""
        done = await asyncio.gather(*(ask(server) for server in self.servers.values()), return_exceptions=True)
        for url, result in zip(self.servers, done, strict=True):
            if isinstance(result, EngineUnreachable):
                self._avoid[url] = self._clock() + AVOID_S
                log.warning("replica %s: %s", url, result)
        refused = [r for r in done if isinstance(r, BaseException) and not isinstance(r, EngineUnreachable)]
        answers = [r for r in done if not isinstance(r, BaseException)]
        if refused or not answers:
            raise refused[0] if refused else next(r for r in done if isinstance(r, BaseException))
        return answers
