"""Whether a server's log-probs are those of the sampling temperature. Found out once, by asking it.

The trainer needs them at the temperature that was sampled at. Those from before it are dropped, never passed on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from turnwise.errors import EngineError

log = logging.getLogger(__name__)

SAME_EITHER_WAY = (0.0, 1.0)
"""Temperatures at which it does not matter; at 0, log-probs are of temperature 1 by this project's definition."""
_SAME = 1e-5


class LogprobCheck:
    """One server's habit. ``probe(temperature)`` gives the log-prob of one and the same token at that temperature.

    ``advice``: the sentence for the log where the log-probs are from before it. ``known``: what need not be asked.
    """

    def __init__(self, probe: Callable[[float], Awaitable[float]], advice: str) -> None:
        self.known: bool | None = None
        self.advice = advice
        self._probe = probe
        self._asking = asyncio.Lock()

    async def at_sampling_temperature(self) -> bool:
        """Whether the log-probs follow the temperature. Log-probs from before it are equal at two of them, and below 0.

        Raises EngineError where the server does not answer; one that refuses the question is taken not to.
        """
        async with self._asking:
            if self.known is None:
                try:
                    first = await self._probe(1.0)
                    self.known = first > -_SAME or abs(first - await self._probe(2.0)) > _SAME
                except EngineError as e:
                    if e.status != 400:
                        raise
                    self.known = False  # a server that refuses the question must not fail the request
                if not self.known:
                    log.warning(self.advice)
        return self.known
