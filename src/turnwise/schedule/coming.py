"""What is next: the times at which sleep hours and meetings open the window within the next days. Pure.

Keyboard, mouse and requests cannot be foretold; any of them shuts the window within these times as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from itertools import pairwise

from turnwise.schedule.calendar.busy import Busy
from turnwise.schedule.sleep import SleepHours, instant, wall_time

QUARTER = timedelta(minutes=15)
"""Clocks of all zones are set at quarters of an hour, so that hours of sleep may begin or end there."""


@dataclass(frozen=True, order=True)
class Away:
    """A time in which a sensor will say that the person is away, from `start` up to, not with, `end`; both in UTC."""

    start: datetime
    end: datetime
    sensor: str


def coming(sleep: Sequence[SleepHours], meetings: Iterable[Busy], now: datetime, days: float = 7.0) -> list[Away]:
    """All such times that touch the days from `now` (with its zone) on, in order; the first may run already.

    What reaches further than these days is cut at their end.
    """
    start = now.astimezone(UTC)
    end = start + timedelta(days=days)
    found = [Away(begins, ends, "sleep hours") for begins, ends in _sleep(sleep, start, end)]
    found += [
        Away(max(busy.start, start), min(busy.end, end), "calendar")
        for busy in meetings
        if busy.start < end and busy.end > start
    ]
    return sorted(found)


def _sleep(sleep: Sequence[SleepHours], start: datetime, end: datetime) -> list[tuple[datetime, datetime]]:
    """The times within any of the hours. Asked of the hours themselves wherever that may change."""
    moments = sorted({at for hours in sleep for at in _moments(hours, start, end)} | {start, end})
    found: list[tuple[datetime, datetime]] = []
    for begins, ends in pairwise(moments):
        if any(hours.holds(wall_time(begins, hours.zone)) for hours in sleep):
            if found and found[-1][1] == begins:
                found[-1] = (found[-1][0], ends)
            else:
                found.append((begins, ends))
    return found


def _moments(hours: SleepHours, start: datetime, end: datetime) -> list[datetime]:
    """Where these hours may begin or end: at their times of each day (twice if set back), and where a clock is set."""
    first = wall_time(start, hours.zone).date() - timedelta(days=1)
    days = [first + timedelta(days=i) for i in range((end - start).days + 4)]
    clocks = (hours.start, hours.end, time())
    walls = [datetime.combine(day, clock, None) for day in days for clock in clocks]
    found = [instant(wall.replace(fold=fold), hours.zone) for wall in walls for fold in (0, 1)]
    quarter = start.replace(minute=0, second=0, microsecond=0)
    while quarter < end:
        found.append(quarter)
        quarter += QUARTER
    return [at for at in found if start < at < end]
