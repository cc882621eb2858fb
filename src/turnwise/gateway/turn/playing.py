"""Rollouts at the gateway: which sessions are some without their requests' saying so, and how they let people go first.

A person waits for an answer; nobody waits for a step of a rollout. So a step waits while a person's request is in hand,
and for a moment behind it, but never longer than `server.rollouts_wait_s`: a house full of people slows rollouts and
does not stop them.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import replace

from turnwise.gateway.errors import TOO_LONG, ApiError
from turnwise.gateway.wire.http_request import Caller
from turnwise.journal import Journal
from turnwise.schedule.traffic import Traffic
from turnwise.types import Rollout

LIMITS_MET = {TOO_LONG: "the context is full", "step_limit": "the limit of steps"}
"""Refusals that end a rollout which its agent did not end, by their code, and what is recorded of them."""
MOST_KNOWN = 4096
"""Sessions of which it is kept in mind whether they are rollouts."""
LOOK_S = 0.25
"""Longest time between two looks whether a person is still here."""


def still_to_wait(quiet_s: float, waited_s: float, pause_s: float, most_s: float) -> float:
    """Seconds that a step waits before it may look again; 0: it goes on.

    ``quiet_s``: since a person's request last began or ended, 0 while one is in hand. ``pause_s``: how long it has to
    be quiet (0: nobody waits for anybody). ``most_s``: the longest that one step waits, whoever is here.
    """
    left = most_s - waited_s
    if pause_s <= 0 or left <= 0 or quiet_s >= pause_s:
        return 0.0
    return min(left, LOOK_S if quiet_s == 0 else min(LOOK_S, pause_s - quiet_s))


class Playing:
    """What the gateway knows of rollouts. Called on its event loop alone."""

    def __init__(
        self,
        journal: Journal,
        traffic: Traffic,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._journal, self._traffic = journal, traffic
        self._monotonic, self._sleep = monotonic, sleep
        self._known: OrderedDict[str, tuple[Rollout, str | None] | None] = OrderedDict()

    async def recognised(self, caller: Caller) -> Caller:
        """The caller with what was said of its session before; one that says itself what it is, as it is. Raises
        ApiError (403) for one with a rollout's own token where no such rollout was announced: what it says itself does
        not count.

        Whatever calls itself what in a session that was announced, it is the one rollout: its turns are one client's.
        """
        session = caller.session_id
        if session is None:
            return caller
        if caller.rollout is not None and not caller.bound:
            self._known.pop(session, None)
            return caller
        if session not in self._known:
            self._known[session] = await asyncio.to_thread(self._look_up, session)
            if len(self._known) > MOST_KNOWN:
                self._known.popitem(last=False)
        known = self._known[session]
        if known is None and caller.bound:
            message = f"no rollout {session} is under way; it is announced before its agent asks"
            raise ApiError(403, message, code="no_such_rollout")
        if known is None:
            return caller
        rollout, key = known
        return replace(caller, rollout=rollout, key=f"rollout:{session}" if caller.bound else key or caller.key)

    def _look_up(self, session: str) -> tuple[Rollout, str | None] | None:
        """What a session is as a rollout, and the key of whoever asks in it; None where that is who began it, by
        headers of its own."""
        rollout = self._journal.rollouts.owner(session)
        if rollout is None:
            return None
        client = self._journal.rollouts.client_of(session)
        ours = f"rollout:{session}"
        return rollout, ours if client in (None, ours) else None

    def news_of(self, session_id: str) -> None:
        """Something was said of a session."""
        self._known.pop(session_id, None)

    async def refused(self, caller: Caller, code: str | None) -> None:
        """A request of a rollout was refused; where that is a limit, it is noted as what ended it."""
        if caller.session_id is not None and (limit := LIMITS_MET.get(code or "")) is not None:
            await asyncio.to_thread(self._journal.rollouts.cut_off, caller.session_id, limit)

    async def give_way(self) -> None:
        """Wait until a step of a rollout may go on, as the settings say; one that may at once does not wait."""
        settings, begun = self._journal.store.config.server, self._monotonic()
        while True:
            waited = self._monotonic() - begun
            wait = still_to_wait(self._traffic.quiet_s, waited, settings.rollouts_pause_s, settings.rollouts_wait_s)
            if not wait:
                return
            await self._sleep(wait)
