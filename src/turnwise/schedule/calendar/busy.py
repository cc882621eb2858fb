"""Makes busy times of a trimmed calendar: series, exceptions, zones, what is cancelled and what is free.

It is run in a process of its own (`bounded.py`), for a series can be written that no limit but the clock stops.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from turnwise.errors import SensorFault

NO_MEETING = timedelta(hours=23)
"""From a day on (of 23 hours when clocks change) it is a holiday or a deadline, which keeps nobody from a keyboard."""
MOST_TIMES = 10_000
"""Busy times that are looked at: a week has 10,080 minutes."""
_NOT_BUSY = frozenset(("FREE", "TENTATIVE", "WORKINGELSEWHERE"))
_SAYS_HOW = ("STATUS", "TRANSP", "X-MICROSOFT-CDO-BUSYSTATUS")
MISSING = (
    "calendars are read with packages that are not installed; run `pip install 'turnwise[calendar]'`, "
    "or leave schedule.calendar empty"
)


@dataclass(frozen=True, order=True)
class Busy:
    """A time in which the person is in a meeting, from `start` up to, not with, `end`; both in UTC."""

    start: datetime
    end: datetime


def busy_times(calendar: str, start: datetime, end: datetime, zone: ZoneInfo | None) -> list[Busy]:
    """The busy times that touch `start` to `end` (with zones), in order, joined where they meet.

    `zone` is where times without a zone are meant; None is the machine's. Raises SensorFault.
    """
    try:
        import icalendar
        import recurring_ical_events
    except ImportError:
        raise SensorFault(MISSING) from None
    try:
        parsed = icalendar.Calendar.from_ical(calendar)
        events = recurring_ical_events.of(parsed, skip_bad_series=True).between(start, end)
    except RecursionError:
        raise SensorFault("it is nested too deeply") from None
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, ArithmeticError) as e:
        # A parser of foreign text; what it stumbles over, it says in words of its own.
        raise SensorFault(f"it cannot be read as a calendar: {type(e).__name__}") from None
    if len(events) > MOST_TIMES:
        raise SensorFault(f"it has more than {MOST_TIMES} events within {(end - start).days} days")
    return joined(busy for event in events for busy in _busy(event, zone) if busy.start < end and busy.end > start)


def joined(times: Iterator[Busy] | list[Busy]) -> list[Busy]:
    """The times in order, with those made one that overlap or meet."""
    done: list[Busy] = []
    for busy in sorted(times):
        if done and busy.start <= done[-1].end:
            done[-1] = Busy(done[-1].start, max(done[-1].end, busy.end))
        else:
            done.append(busy)
    return done


def is_meeting(start: datetime, end: datetime) -> bool:
    """Whether a busy time is of a length that takes a person away from the machine."""
    return timedelta() < end - start < NO_MEETING


def _busy(event: Any, zone: ZoneInfo | None) -> Iterator[Busy]:
    """The event as a busy time; nothing for whole days, and for what is cancelled, not sure, or leaves one free."""
    said = {name: str(event.get(name, "")).strip().upper() for name in _SAYS_HOW}
    if said["STATUS"] in ("CANCELLED", "TENTATIVE") or said["TRANSP"] == "TRANSPARENT":
        return
    if said["X-MICROSOFT-CDO-BUSYSTATUS"] in _NOT_BUSY:
        return
    start, end = (getattr(event.get(name), "dt", None) for name in ("DTSTART", "DTEND"))
    if not isinstance(start, datetime) or not isinstance(end, datetime):
        return  # a whole day, or no time at all
    begins, ends = _in_utc(start, zone), _in_utc(end, zone)
    if is_meeting(begins, ends):
        yield Busy(begins, ends)


def _in_utc(at: date, zone: ZoneInfo | None) -> datetime:
    assert isinstance(at, datetime)
    if at.tzinfo is None:
        at = at.replace(tzinfo=zone) if zone else at.astimezone()
    return at.astimezone(UTC)
