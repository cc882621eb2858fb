"""The gateway's own traffic as a sensor: who talks is here.

The gateway notes in the journal that a person's request began or ended: with a group of writes that is under way
anyway, at most once a second, and nobody waits for it. The trainer reads the note. Housekeeping of agents and the
requests of judge, evolver and teacher are no sign of a person.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from turnwise.errors import JournalError
from turnwise.journal.journal import Journal
from turnwise.schedule.window import SensorOpinion, SensorReading

STATUS_KEY = "traffic"
"""Under which the note stands among what loops say of themselves."""
NAME = "gateway"
RECENT_S = 60.0
"""After a request somebody reads the answer, and may have the next question."""
NOTED_EVERY_S = 1.0
REFRESHED_S = 10.0
"""While an answer is under way: a note that is as old as `RECENT_S` would look like the end of it."""


class Traffic:
    """The gateway's side. Called on its event loop alone.

    `note` writes how many requests are under way, and gives the future of that write.
    """

    def __init__(self, note: Callable[[int], Future[None]], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._note = note
        self._monotonic = monotonic
        self._under_way: set[str] = set()
        self._noted_at = float("-inf")
        self._changed_at = float("-inf")
        self._news = False

    @property
    def quiet_s(self) -> float:
        """Seconds since a person's request last began or ended; 0 while one is under way."""
        return 0.0 if self._under_way else self._monotonic() - self._changed_at

    def began(self, turn_id: str) -> None:
        """A person's request is here."""
        self._under_way.add(turn_id)
        self._changed()

    def ended(self, turn_id: str) -> None:
        """An answer is complete, or broken off. Nothing for a turn that is no person's."""
        if turn_id in self._under_way:
            self._under_way.remove(turn_id)
            self._changed()

    def tick(self) -> None:
        """Write what has not been written for its being too soon; to be called each second."""
        since = self._monotonic() - self._noted_at
        if (since >= NOTED_EVERY_S and self._news) or (since >= REFRESHED_S and self._under_way):
            self._write()

    def _changed(self) -> None:
        self._news, self._changed_at = True, self._monotonic()
        self.tick()

    def _write(self) -> None:
        self._news, self._noted_at = False, self._monotonic()
        try:
            self._note(len(self._under_way)).add_done_callback(self._written)
        except JournalError:  # closed, or too much waits: the next tick tries again
            self._news = True

    def _written(self, done: Future[None]) -> None:
        """On the journal's thread: what could not be written is news again."""
        if done.exception() is not None:
            self._news = True


@dataclass(frozen=True)
class LastRequest:
    """How many of a person's requests are under way, and how long ago (seconds) one last began or ended."""

    under_way: int
    seconds_ago: float


def last_request(journal: Journal) -> LastRequest | None:
    """What the gateway noted last; None where there never was a request."""
    noted = journal.status.last(STATUS_KEY)
    return None if noted is None else LastRequest(int(noted[0]["under_way"]), noted[1])


def reading(last: LastRequest | None, quiet_min: float) -> SensorReading:
    """The gateway's opinion: it closes for a minute after a request, and opens after `quiet_min` without one."""
    if last is None:
        return SensorReading(NAME, SensorOpinion.OPENS, "No request has come yet.")
    ago = last.seconds_ago
    if ago < RECENT_S:
        why = "A request is being answered." if last.under_way else f"A request was here {ago:.0f} seconds ago."
        return SensorReading(NAME, SensorOpinion.CLOSES, why)
    if ago < quiet_min * 60:
        why = f"No request for {ago / 60:.0f} minutes; after {quiet_min:g} the gateway is quiet."
        return SensorReading(NAME, SensorOpinion.NONE, why)
    return SensorReading(NAME, SensorOpinion.OPENS, f"No request for {ago / 60:.0f} minutes.")
