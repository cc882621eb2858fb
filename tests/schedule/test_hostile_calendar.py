"""Calendars made to overwhelm: each meets a limit, in a process of its own, and is answered with a sentence."""

from __future__ import annotations

import pytest

from tests.schedule.calendars import END, START, calendar, event, meeting
from turnwise.errors import SensorFault
from turnwise.schedule.calendar import bounded
from turnwise.schedule.calendar.bounded import bounded_busy_times

PLAIN = meeting(24, 10, 11, uid="plain")


def test_a_plain_calendar_comes_through_the_child() -> None:
    [busy] = bounded_busy_times(calendar(PLAIN), START, END, None)
    assert (busy.start.isoformat(), busy.end.isoformat()) == ("2026-11-24T10:00:00+00:00", "2026-11-24T11:00:00+00:00")


DEEP = 20_000
HARMLESS = {
    "deep nesting": calendar("BEGIN:X\r\n" * DEEP + "END:X\r\n" * DEEP, PLAIN),
    "deep in an event": calendar(event("BEGIN:VALARM\r\n" * DEEP + "END:VALARM\r\n" * DEEP, uid="b"), PLAIN),
    "deep in a zone": calendar("BEGIN:VTIMEZONE\r\n" + "BEGIN:STANDARD\r\n" * DEEP + "END:STANDARD\r\n" * DEEP
                               + "END:VTIMEZONE", PLAIN),
    "a line of a megabyte": calendar(event("DTSTART;X=" + "y" * (1 << 20) + ":20261124T100000Z", uid="b"), PLAIN),
    "lines folded for ever": calendar(event("RRULE:FREQ=DAILY" + "\r\n ;" * 300_000, uid="b"), PLAIN),
    "no end of the event before": calendar("BEGIN:VEVENT\r\nUID:b\r\nEND:VTODO", PLAIN),
    "broken encodings": calendar(PLAIN).replace(b"test", b"\xff\xfe\x80\xc3"),
    "nothing but line ends": calendar(PLAIN) + b"\r\n" * 1_000_000,
    "seconds of the past": calendar(event("DTSTART:20261101T000000Z", "DURATION:PT1S",
                                          "RRULE:FREQ=SECONDLY;COUNT=20", uid="b"), PLAIN),
}  # fmt: skip


@pytest.mark.parametrize("name", HARMLESS)
def test_what_is_passed_over(name: str) -> None:
    assert len(bounded_busy_times(HARMLESS[name], START, END, None)) == 1


FOREVER = {
    "every second since 1970": ["DTSTART:19700101T000000Z", "DURATION:PT1S", "RRULE:FREQ=SECONDLY"],
    "every minute of years": ["DTSTART:20200101T000000Z", "DURATION:PT1M", "RRULE:FREQ=MINUTELY"],
    "a day that never comes": ["DTSTART:20260101T000000Z", "DURATION:PT1H",
                               "RRULE:FREQ=SECONDLY;BYMONTH=2;BYMONTHDAY=30"],
}  # fmt: skip


@pytest.mark.parametrize("name", FOREVER)
def test_series_without_end_meet_a_limit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "LIMIT_S", 3.0)
    with pytest.raises(SensorFault, match=r"longer than 3 seconds|more than 10000 events|more memory|ended with code"):
        bounded_busy_times(calendar(event(*FOREVER[name])), START, END, None)


def test_memory_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "MEMORY_BYTES", 100 << 20)
    with pytest.raises(SensorFault, match="memory"):
        bounded_busy_times(calendar(*["X-JUNK:" + "y" * 70] * 300_000, PLAIN), START, END, None)
