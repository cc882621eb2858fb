"""What is next agrees with what the hours of sleep say at every minute, also where clocks are set."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from turnwise.schedule.calendar.busy import Busy
from turnwise.schedule.coming import Away, coming
from turnwise.schedule.sleep import SleepHours, SleepTable
from turnwise.schedule.window import SensorOpinion

MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("zone", "first", "hours"),
    [
        ("Europe/Berlin", datetime(2026, 3, 27, 12, 7, tzinfo=UTC), [(time(1), time(2, 30)), (time(23), time(7))]),
        ("Europe/Berlin", datetime(2026, 10, 23, 12, 7, tzinfo=UTC), [(time(1), time(2, 30)), (time(2, 45), time(3))]),
        ("Australia/Lord_Howe", datetime(2026, 4, 3, 0, 0, tzinfo=UTC), [(time(1, 40), time(1, 50))]),
        ("Asia/Kathmandu", datetime(2026, 5, 3, 0, 0, tzinfo=UTC), [(time(22, 59), time(22, 58))]),
    ],
)
def test_every_minute_of_four_days(zone: str, first: datetime, hours: list[tuple[time, time]]) -> None:
    table = SleepTable(tuple(SleepHours(start, end, ZoneInfo(zone), frozenset({5, 6})) for start, end in hours))
    times = coming(table.hours, [], first, days=4)
    asleep = [
        first + i * MINUTE for i in range(4 * 1440) if table.read(first + i * MINUTE).opinion is SensorOpinion.OPENS
    ]
    told = [at for each in times for i in range(4 * 1440) if each.start <= (at := first + i * MINUTE) < each.end]
    assert told == asleep and asleep
    assert all(before.end < after.start for before, after in pairwise(times))


def test_meetings_stand_between_them_and_are_cut_at_the_end() -> None:
    now = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
    meetings = [Busy(now - timedelta(hours=2), now - timedelta(hours=1)), Busy(now - MINUTE, now + MINUTE),
                Busy(now + timedelta(hours=23), now + timedelta(hours=26))]  # fmt: skip
    night = [SleepHours(time(23), time(7), ZoneInfo("UTC"))]
    assert coming(night, meetings, now, days=1) == [
        Away(now, now + MINUTE, "calendar"),
        Away(now + timedelta(hours=11), now + timedelta(hours=19), "sleep hours"),
        Away(now + timedelta(hours=23), now + timedelta(hours=24), "calendar"),
    ]
