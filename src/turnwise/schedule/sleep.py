"""The sensor of sleep hours: local times of a zone, which may cross midnight. The time is given, never read here."""

from dataclasses import dataclass
from datetime import UTC, datetime, time
from zoneinfo import ZoneInfo

from turnwise.config.schedule import DAYS, ScheduleConfig
from turnwise.schedule.window import SensorOpinion, SensorReading

EVERY_DAY = frozenset(range(7))


@dataclass(frozen=True)
class SleepHours:
    """From `start` up to, not with, `end`, as the clock on the wall shows them in `zone` (None: the machine's).

    `end` at or before `start` is on the next day. `days` are the weekdays on which the span begins (0 is Monday).
    """

    start: time
    end: time
    zone: ZoneInfo | None
    days: frozenset[int] = EVERY_DAY

    def read(self, now: datetime) -> SensorReading:
        """What `now` (with its zone; else ValueError) means. Compared as wall time, so gaps and folds need no care."""
        local = wall_time(now, self.zone)
        inside = self.holds(local)
        opinion = SensorOpinion.OPENS if inside else SensorOpinion.NONE
        return SensorReading("sleep hours", opinion, f"{local:%H:%M} is {'within' if inside else 'outside'} {self}.")

    def holds(self, local: datetime) -> bool:
        """Whether a wall time is within."""
        clock, today = local.time(), local.weekday()
        if self.start < self.end:
            return self.start <= clock < self.end and today in self.days
        begun_today = clock >= self.start and today in self.days
        return begun_today or (clock < self.end and (today - 1) % 7 in self.days)

    def __str__(self) -> str:
        end = "24:00" if self.end == time() else f"{self.end:%H:%M}"
        where = self.zone.key if self.zone else "the machine's zone"
        return f"{_days(self.days)}{self.start:%H:%M}-{end} ({where})"


@dataclass(frozen=True)
class SleepTable:
    """The sensor of all hours of sleep: away within any of them."""

    hours: tuple[SleepHours, ...]
    name = "sleep hours"
    every_s = 10.0

    def read(self, now: datetime) -> SensorReading:
        readings = [hours.read(now) for hours in self.hours]
        opens = next((reading for reading in readings if reading.opinion is SensorOpinion.OPENS), None)
        return opens or SensorReading(self.name, SensorOpinion.NONE, " ".join(reading.why for reading in readings))


def wall_time(now: datetime, zone: ZoneInfo | None) -> datetime:
    """What the clock on the wall shows. Raises ValueError for a time without a zone."""
    if now.tzinfo is None:
        raise ValueError("the time has no zone: give one, such as datetime.now(UTC)")
    return now.astimezone(zone)


def instant(wall: datetime, zone: ZoneInfo | None) -> datetime:
    """The moment (UTC) at which the clock on the wall of a zone shows this; `wall` has none, and its `fold` counts."""
    return (wall if zone is None else wall.replace(tzinfo=zone)).astimezone(UTC)


def _days(days: frozenset[int]) -> str:
    if days == EVERY_DAY:
        return ""
    first = next(day for day in sorted(days) if (day - 1) % 7 not in days)
    last = next(day for day in sorted(days) if (day + 1) % 7 not in days)
    return f"{DAYS[first]}{'' if first == last else '-' + DAYS[last]} "


def sleep_table(schedule: ScheduleConfig) -> SleepTable:
    """The hours of sleep of a configuration."""
    zone = schedule.zone_info
    return SleepTable(tuple(SleepHours(span.start, span.end, zone, span.days) for span in schedule.sleep_spans))
