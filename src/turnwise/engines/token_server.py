"""What the clients of servers that take token ids share: one address, its key, and what is asked of any of them."""

from __future__ import annotations

from typing import Any

import httpx

from turnwise.engines.events import EventClient
from turnwise.engines.http import bearer, engine_client, refusal, send
from turnwise.engines.logprob_check import LogprobCheck


class TokenServer:
    """Talks to one server at `url`. `stall_s` is the longest wait for the next token.

    With an `api_key`, each request carries it as a bearer token.
    """

    NO_ADAPTERS: str
    RAW_LOGPROBS: str
    """What to say of a server that takes no adapters, or gives log-probs from before the temperature."""

    def __init__(self, url: str, stall_s: float = 60.0, api_key: str | None = None) -> None:
        self.url = url
        self._api_key = api_key
        self._client = engine_client(url, stall_s, bearer(api_key))
        self._events = EventClient(url, stall_s, api_key)
        self._max_model_len: int | None = None
        self.no_adapters = self.NO_ADAPTERS.format(url=url)
        self.logprob_check = LogprobCheck(self._probe, self.RAW_LOGPROBS.format(url=url))

    async def logprobs_follow_temperature(self) -> bool:
        """Whether the log-probs are those of the sampling temperature. Raises EngineError where nothing answers."""
        return await self.logprob_check.at_sampling_temperature()

    async def healthy(self) -> bool:
        try:
            return (await self._client.get("/health", timeout=5.0)).status_code == 200
        except httpx.HTTPError:
            return False

    async def close(self) -> None:
        await self._events.close()
        await self._client.aclose()

    async def _probe(self, temperature: float) -> float:
        """The log-prob of one and the same token at a temperature."""
        raise NotImplementedError

    async def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> httpx.Response:
        response = await send(self._client, method, path, body)
        if response.status_code != 200:
            raise refusal(response, self._api_key)
        return response
