"""The busy times of the calendar that is configured: read now and then, kept in the home for when it is out of reach.

What is kept are times alone, in a file that only its owner reads.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from turnwise.config import Config
from turnwise.config.schedule import GOOGLE, calendar_address, is_caldav
from turnwise.errors import SensorFault
from turnwise.files import write_atomically
from turnwise.schedule.calendar.bounded import bounded_busy_times
from turnwise.schedule.calendar.busy import Busy
from turnwise.schedule.calendar.caldav import from_caldav
from turnwise.schedule.calendar.fetching import Fetched, from_address, from_file
from turnwise.schedule.calendar.google import busy_at_google

REFRESH = timedelta(minutes=15)
"""How often the calendar is looked at."""
BACK, AHEAD = timedelta(days=1), timedelta(days=9)
"""What is read of it: a meeting may have begun yesterday, and a week is shown."""
READ_AGAIN = timedelta(hours=12)
"""After this it is read as a whole though it has not changed, for the days that have come into view."""
MOST_KEPT = 4 << 20

Source = Callable[[str, datetime, datetime], tuple[list[Busy], str] | None]
"""Busy times from a start to an end and the calendar's mark; None where it still has the mark given first."""


@dataclass(frozen=True)
class CalendarReading:
    """What was last read of the calendar, until when it reaches, and its mark at the source."""

    busy: tuple[Busy, ...]
    read_at: datetime
    until: datetime
    mark: str = ""


class CalendarReader:
    """Looks at the calendar now and then. `fault` says what was wrong the last time, "" for nothing."""

    def __init__(self, source: Source, kept: Path, of: str, *, keep: bool = True) -> None:
        """`of` names the calendar: what was kept of another one is not used. `keep`: whether anything is written."""
        self._source = source
        self._file = kept
        self._of = of
        self._keep = keep
        self._tried_at: datetime | None = None
        self._reading: CalendarReading | None = None
        self.fault = ""

    def busy(self, now: datetime) -> CalendarReading:
        """What is known of the days around `now`. Raises SensorFault where nothing is, with the reason."""
        if self._reading is None:
            self._reading = self._load()
        if self._tried_at is None or not timedelta() <= now - self._tried_at < REFRESH:
            self._tried_at = now
            self._refresh(now)
        if self._reading is None or self._reading.until <= now:
            raise SensorFault(self.fault or "the calendar was read too long ago")
        return self._reading

    def _refresh(self, now: datetime) -> None:
        had = self._reading
        fresh = had is not None and timedelta() <= now - (had.until - AHEAD) < READ_AGAIN
        start, end = (now - BACK).astimezone(UTC), (now + AHEAD).astimezone(UTC)
        try:
            told = self._source(had.mark if had is not None and fresh else "", start, end)
        except SensorFault as e:
            self.fault = str(e)
            return
        self.fault = ""
        if told is not None:
            self._reading = CalendarReading(tuple(told[0]), now, end, told[1])
        elif had is not None:
            self._reading = replace(had, read_at=now)
        if self._keep:
            self._save()

    def _save(self) -> None:
        assert self._reading is not None
        reading = self._reading
        told = {
            "of": self._of,
            "read_at": reading.read_at.isoformat(),
            "until": reading.until.isoformat(),
            "mark": reading.mark,
            "busy": [[each.start.isoformat(), each.end.isoformat()] for each in reading.busy],
        }
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._file, json.dumps(told).encode())
        except OSError as e:
            self.fault = f"{self._file} cannot be written: {e.strerror}"

    def _load(self) -> CalendarReading | None:
        """What an earlier process kept, if it can be read and is of this calendar."""
        try:
            if self._file.stat().st_size > MOST_KEPT:
                return None
            told = json.loads(self._file.read_bytes())
            if told["of"] != self._of:
                return None
            busy = tuple(Busy(_moment(start), _moment(end)) for start, end in told["busy"])
            return CalendarReading(busy, _moment(told["read_at"]), _moment(told["until"]), str(told["mark"]))
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            return None  # a file that cannot be read is made anew


def calendar_reader(config: Config, *, keep: bool = True) -> CalendarReader:
    """The reader of the calendar that `schedule.calendar` names; it must name one."""
    schedule = config.schedule
    names = (schedule.calendar, schedule.calendar_user, schedule.zone, schedule.calendar_mail)
    of = hashlib.sha256(" ".join(names).encode()).hexdigest()
    return CalendarReader(_source(config), config.home / "calendar.json", of, keep=keep)


def google_token_path(config: Config) -> Path:
    """Where the leave that Google gave is kept."""
    return config.home / "google-calendar.json"


def _source(config: Config) -> Source:
    schedule = config.schedule
    where, zone = schedule.calendar, schedule.zone_info

    def sign_in() -> tuple[str, str] | None:
        password = os.environ.get(schedule.calendar_password_env, "")
        return (schedule.calendar_user, password) if schedule.calendar_user else None

    def fetched(mark: str, start: datetime, end: datetime) -> Fetched | None:
        if is_caldav(where):
            return from_caldav(calendar_address(where), sign_in(), start, end)
        if "://" in where:
            return from_address(calendar_address(where), sign_in(), mark)
        return from_file(Path(where).expanduser(), mark)

    def read(mark: str, start: datetime, end: datetime) -> tuple[list[Busy], str] | None:
        if where == GOOGLE:
            return busy_at_google(google_token_path(config), start, end), ""
        found = fetched(mark, start, end)
        if found is None:
            return None
        mine = schedule.calendar_mail or schedule.calendar_user
        return bounded_busy_times(found.content, start, end, zone, mine), found.mark

    return read


def _moment(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError("no zone")
    return at
