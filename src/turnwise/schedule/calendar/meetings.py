"""The sensor of meetings: while one runs, the person is away."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from turnwise.errors import SensorFault
from turnwise.schedule.calendar.reader import REFRESH, CalendarReader, CalendarReading
from turnwise.schedule.sleep import wall_time
from turnwise.schedule.window import NOT_KNOWN, SensorOpinion, SensorReading


class Meetings:
    """Says whether a meeting of the calendar runs. It opens only: a free calendar says nothing of the person."""

    name = "calendar"
    every_s = 15.0

    def __init__(self, reader: CalendarReader, zone: ZoneInfo | None) -> None:
        self._reader = reader
        self._zone = zone

    def read(self, now: datetime) -> SensorReading:
        """Whether a meeting runs, and what was wrong with the calendar. May wait for it, within limits."""
        try:
            reading = self._reader.busy(now)
        except SensorFault as e:
            return SensorReading(self.name, SensorOpinion.NONE, f"{NOT_KNOWN}{e}.")
        at, old = now.astimezone(UTC), self._age(reading, now)
        meeting = next((busy for busy in reading.busy if busy.start <= at < busy.end), None)
        if meeting is not None:
            until = f"{wall_time(meeting.end, self._zone):%H:%M}"
            return SensorReading(self.name, SensorOpinion.OPENS, f"In a meeting until {until}.{old}")
        coming = next((busy for busy in reading.busy if busy.start > at), None)
        when = f"the next begins {wall_time(coming.start, self._zone):%a %H:%M}" if coming else "none is near"
        return SensorReading(self.name, SensorOpinion.NONE, f"No meeting now; {when}.{old}")

    def _age(self, reading: CalendarReading, now: datetime) -> str:
        """A sentence for what is not as new as it should be."""
        hours = (now - reading.read_at).total_seconds() / 3600
        fault = f": {self._reader.fault}" if self._reader.fault else ""
        return f" As of {hours:.1f} hours ago{fault}." if fault or now - reading.read_at > 2 * REFRESH else ""
