"""Sleep hours cross midnight and the changes of daylight saving."""

from datetime import UTC, datetime, time
from zoneinfo import ZoneInfo

import pytest

from turnwise.schedule.sleep import SleepHours
from turnwise.schedule.window import SensorOpinion

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("start", "end", "now", "opens"),
    [
        (time(23), time(7), datetime(2026, 1, 5, 22, 0, tzinfo=UTC), True),
        (time(23), time(7), datetime(2026, 1, 5, 21, 59, tzinfo=UTC), False),
        (time(23), time(7), datetime(2026, 1, 5, 6, 0, tzinfo=UTC), False),
        (time(23), time(7), datetime(2026, 1, 5, 2, 0, tzinfo=UTC), True),
        (time(13), time(14), datetime(2026, 7, 5, 11, 30, tzinfo=UTC), True),
        (time(13), time(14), datetime(2026, 7, 5, 12, 0, tzinfo=UTC), False),
        # the gap: 01:59 is followed by 03:00, so hours that end at 02:30 end there
        (time(1), time(2, 30), datetime(2026, 3, 29, 0, 59, tzinfo=UTC), True),
        (time(1), time(2, 30), datetime(2026, 3, 29, 1, 0, tzinfo=UTC), False),
        # the fold: 02:30 comes twice, and both are within
        (time(2), time(3), datetime(2026, 10, 25, 0, 30, tzinfo=UTC), True),
        (time(2), time(3), datetime(2026, 10, 25, 1, 30, tzinfo=UTC), True),
    ],
)
def test_the_clock_on_the_wall_decides(start, end, now, opens):
    opinion = SleepHours(start, end, BERLIN).read(now).opinion
    assert opinion is (SensorOpinion.OPENS if opens else SensorOpinion.NONE)


def test_a_time_without_zone_is_refused():
    with pytest.raises(ValueError, match="has no zone"):
        SleepHours(time(23), time(7), BERLIN).read(datetime(2026, 1, 5))
