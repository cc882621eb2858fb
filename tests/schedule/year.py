"""A year of one person, drawn by chance and followed look by look: the clock is given, and nothing waits.

The sensors, the calendar and the window are the real ones; the person, the desktop's count of seconds without input and
the trainer are played. Promises are checked against the diary (`truth`), which uses no code of the package.
Looks are made around every moment at which something changes; between them nothing does.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from random import Random
from zoneinfo import ZoneInfo

import numpy as np

from tests.schedule.calendars import calendar, event
from turnwise.schedule.calendar.busy import Busy, busy_times
from turnwise.schedule.calendar.meetings import Meetings
from turnwise.schedule.calendar.reader import CalendarReader
from turnwise.schedule.calendar.trimming import trimmed
from turnwise.schedule.input.idle import InputIdle
from turnwise.schedule.sensor import Sensor
from turnwise.schedule.sleep import SleepHours, SleepTable
from turnwise.schedule.window import Window, WindowState, next_window

ZONES = (
    "Europe/Berlin", "America/New_York", "America/St_Johns", "America/Santiago", "Australia/Lord_Howe",
    "Australia/Adelaide", "Pacific/Chatham", "Asia/Kathmandu", "Africa/Casablanca", "UTC",
)  # fmt: skip
"""Clocks that are set in both halves of the world, by an hour, by half an hour, or never; zones of odd quarters."""
BEGIN = datetime(2027, 1, 1, tzinfo=UTC)
DAY, WEEK_MIN = 86_400.0, 7 * 24 * 60
QUIET_S, ACTIVE_S = 60.0, 60.0
"""What is promised, said again here so that a change of the code's own figures is noticed."""

Span = tuple[float, float]
"""Seconds since the year began."""


@dataclass(frozen=True)
class Hours:
    """A line of the sleep table, in minutes of the day; `end` at or before `start` is on the next day."""

    start: int
    end: int
    days: frozenset[int]


@dataclass(frozen=True)
class Series:
    """A meeting that comes every some days, by the clock on the wall."""

    first: date
    clock: time
    minutes: int
    every_days: int


@dataclass(frozen=True)
class Diary:
    """What is true of the year. `touches` are when the person touches a key, in seconds since it began."""

    zone: ZoneInfo
    sleep: tuple[Hours, ...]
    meetings: tuple[Series, ...]
    touches: tuple[float, ...]
    idle_min: float
    look_s: float
    micro_batch_s: float
    days: int


def diary(seed: int, days: int) -> Diary:
    """A year, or its first days, of a random person."""
    random = Random(seed)
    sleep = tuple(
        Hours(random.randrange(1440), random.randrange(1440), frozenset(random.sample(range(7), random.randint(1, 7))))
        for _ in range(random.randint(0, 2))
    )
    meetings = tuple(
        Series(
            date(2027, 1, random.randint(1, 28)), time(random.randint(8, 20), 30), random.randint(5, 180),
            random.choice((1, 7, 14)),
        )
        for _ in range(random.randint(0, 2))
    )  # fmt: skip
    touches = [0.0]  # they were there as the year began
    for day in range(days):
        at = (day + random.random()) * DAY
        for _ in range(random.choice((0, 0, 1, 2, 6))):
            touches.append(at)
            at += random.choice((1.0, 20.0, 70.0, 400.0, 2_000.0, 20_000.0)) * random.uniform(0.5, 2)
    return Diary(
        zone=ZoneInfo(random.choice(ZONES)), sleep=sleep, meetings=meetings, touches=tuple(sorted(touches)),
        idle_min=random.choice((1.0, 5.0, 30.0)), look_s=random.choice((10.0, 30.0, 60.0)),
        micro_batch_s=random.choice((0.5, 10.0, 90.0)), days=days,
    )  # fmt: skip


# What is true, worked out from the diary alone


def asleep(kept: Diary) -> list[Span]:
    """From a table of the minutes of a week, as the clock on the wall counts them."""
    table = np.zeros(WEEK_MIN, bool)
    for hours in kept.sleep:
        length = (hours.end - hours.start) % 1440 or 1440
        for day in hours.days:
            table[(np.arange(length) + day * 1440 + hours.start) % WEEK_MIN] = True
    quarters = np.arange(kept.days * 96)
    offsets = np.array([_offset_min(kept.zone, BEGIN + timedelta(minutes=15 * int(q))) for q in quarters])
    minutes = np.arange(kept.days * 1440) + np.repeat(offsets, 15) + BEGIN.weekday() * 1440
    inside = np.concatenate(([False], table[minutes % WEEK_MIN], [False])).astype(int)
    edges = np.diff(inside)
    return [(60.0 * a, 60.0 * b) for a, b in zip(np.flatnonzero(edges > 0), np.flatnonzero(edges < 0), strict=True)]


def _offset_min(zone: ZoneInfo, at: datetime) -> int:
    offset = at.astimezone(zone).utcoffset()
    assert offset is not None
    return int(offset.total_seconds()) // 60


def in_meetings(kept: Diary) -> list[Span]:
    found = []
    for series in kept.meetings:
        for n in range(0, kept.days + 40, series.every_days):
            wall = datetime.combine(series.first + timedelta(days=n), series.clock, kept.zone)
            start = (wall.astimezone(UTC) - BEGIN).total_seconds()
            if start < kept.days * DAY:
                found.append((start, start + 60.0 * series.minutes))
    return found


def away(kept: Diary) -> list[Span]:
    """When training is allowed: asleep, in a meeting or long without input, less a minute from every touch on."""
    end = kept.days * DAY
    still = [
        (a + 60 * kept.idle_min, b)
        for a, b in zip(kept.touches, [*kept.touches[1:], end], strict=True)
        if a + 60 * kept.idle_min < b
    ]
    allowed = _joined([*asleep(kept), *in_meetings(kept), *still])
    return [span for part in allowed for span in _without(part, kept.touches) if span[0] < end]


def _joined(spans: list[Span]) -> list[Span]:
    done: list[Span] = []
    for a, b in sorted(spans):
        if done and a <= done[-1][1]:
            done[-1] = (done[-1][0], max(done[-1][1], b))
        else:
            done.append((a, b))
    return done


def _without(span: Span, touches: tuple[float, ...]) -> list[Span]:
    at, end = span
    parts = []
    for touch in touches[bisect_left(touches, at - ACTIVE_S) : bisect_left(touches, end)]:
        if at < touch:
            parts.append((at, touch))
        at = max(at, touch + ACTIVE_S)
    return [*parts, (at, end)] if at < end else parts


# What happens


@dataclass
class Lived:
    """The spans in which the trainer computed, and each look: when, and whether it could compute from then on."""

    trained: list[Span] = field(default_factory=list)
    looks: list[tuple[float, bool]] = field(default_factory=list)


def due_at(at: float) -> bool:
    """Work is there on four days of five."""
    return int(at // DAY) % 5 != 4


def live(kept: Diary, step: Callable[..., Window] = next_window) -> Lived:
    """Let the year pass. `step` is the window's state machine."""
    sensors, clock = _sensors(kept)
    lived, window = Lived(), Window()
    began: float | None = None  # when the trainer last began, and the end of what it cannot break off
    ends: float | None = None
    for now in _looks(kept):
        if ends is not None and now >= ends:
            assert began is not None
            lived.trained.append((began, ends))
            began = ends = None
        clock[0] = now
        readings = [sensor.read(BEGIN + timedelta(seconds=now)) for sensor in sensors]
        window = step(window, now, readings, due=due_at(now), stopped=began is None)
        if window.may_train and began is None:
            began = now
        elif not window.may_train and began is not None and ends is None:
            ends = began + np.ceil((now - began) / kept.micro_batch_s) * kept.micro_batch_s
        if window.state is WindowState.TRAINING and ends is not None:
            ends = None  # it was told to go on before it had come to a stop
        lived.looks.append((now, window.may_train))
    return lived


def _sensors(kept: Diary) -> tuple[list[Sensor], list[float]]:
    """The real sensors, and the clock by which the played desktop counts."""
    clock = [0.0]

    def idle() -> float:
        seen = bisect_right(kept.touches, clock[0])
        return clock[0] - kept.touches[seen - 1]

    def hour(minutes: int) -> time:
        return time(minutes // 60, minutes % 60)

    events = [
        event(
            f"DTSTART;TZID={kept.zone.key}:{series.first:%Y%m%d}T{series.clock:%H%M%S}",
            f"DURATION:PT{series.minutes}M", f"RRULE:FREQ=DAILY;INTERVAL={series.every_days}", uid=str(i),
        )
        for i, series in enumerate(kept.meetings)
    ]  # fmt: skip
    whole = busy_times(trimmed(calendar(*events), BEGIN), BEGIN, BEGIN + timedelta(days=kept.days), kept.zone)

    def source(mark: str, start: datetime, end: datetime) -> tuple[list[Busy], str]:
        from_, to = (bisect_left(whole, Busy(at, at)) for at in (start, end))
        return whole[max(0, from_ - 1) : to], ""

    table = tuple(SleepHours(hour(h.start), hour(h.end), kept.zone, h.days) for h in kept.sleep)
    reader = CalendarReader(source, Path("/nowhere"), "the diary", keep=False)
    sensors: list[Sensor] = [SleepTable(table), InputIdle(kept.idle_min, idle), Meetings(reader, kept.zone)]
    return sensors, clock


def _looks(kept: Diary) -> list[float]:
    """Looks every `look_s` around each moment at which something changes, and for as long as it has effects."""
    moments = [at for span in (*asleep(kept), *in_meetings(kept)) for at in span]
    for touch in kept.touches:
        moments += [touch, touch + ACTIVE_S, touch + 60 * kept.idle_min]
    moments += [day * DAY for day in range(kept.days)]
    after = QUIET_S + kept.micro_batch_s + 4 * kept.look_s
    looks: set[float] = set()
    for at in moments:
        first = int((at - 2 * kept.look_s) // kept.look_s)
        looks.update(n * kept.look_s for n in range(max(0, first), int((at + after) // kept.look_s) + 1))
    return sorted(at for at in looks if at < kept.days * DAY)


# What was promised


def breaches(kept: Diary, lived: Lived) -> list[str]:
    """Each promise that was broken, in words."""
    found = []
    slack = kept.look_s + kept.micro_batch_s
    for begin, end in lived.trained:
        first = bisect_left(kept.touches, begin - ACTIVE_S + 1e-6)
        for touch in kept.touches[first : bisect_left(kept.touches, end)]:
            seen_late = touch > begin - kept.look_s  # the look before it began could not see it
            if end > touch + slack + 1e-6 or not seen_late:
                found.append(f"trained {begin:.0f}-{end:.0f} beside a touch at {touch:.0f}")
    to_open = QUIET_S + 2 * kept.look_s + kept.micro_batch_s
    allowed = away(kept)
    starts = [a for a, _ in allowed]
    for at, trains in lived.looks:
        inside = bisect_right(starts, at) - 1
        within = inside >= 0 and at < allowed[inside][1]
        if trains and not (within and due_at(at)):
            found.append(f"may train at {at:.0f}, which is not allowed or not due")
        if not trains and within and due_at(at) and at >= allowed[inside][0] + to_open and due_at(at - to_open):
            found.append(f"does not train at {at:.0f}, allowed since {allowed[inside][0]:.0f}")
    return found
