"""What of a calendar means that the person is away: meetings, in series and alone, in any zone; nothing else."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from tests.schedule.calendars import END, NOON, START, calendar, event, meeting
from turnwise.errors import SensorFault
from turnwise.schedule.calendar.busy import busy_times
from turnwise.schedule.calendar.trimming import MOST_EVENTS, trimmed

BERLIN = ZoneInfo("Europe/Berlin")


def busy(*parts: str, zone: ZoneInfo | None = BERLIN) -> list[str]:
    """The busy times of a calendar, each as `24T10:00-11:00`, in UTC."""
    times = busy_times(trimmed(calendar(*parts), START), START, END, zone)
    return [f"{each.start:%dT%H:%M}-{each.end:%H:%M}" for each in times]


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["DTSTART:20261124T100000Z", "DTEND:20261124T110000Z"], ["24T10:00-11:00"]),
        (["DTSTART;TZID=America/New_York:20261124T100000", "DURATION:PT45M"], ["24T15:00-15:45"]),
        (["DTSTART;TZID=W. Europe Standard Time:20261124T100000", "DURATION:PT1H"], ["24T09:00-10:00"]),
        (["DTSTART:20261124T100000", "DURATION:PT1H"], ["24T09:00-10:00"]),  # no zone: the person's
        (["DTSTART;TZID=Nowhere/Known:20261124T100000", "DURATION:PT1H"], ["24T09:00-10:00"]),
        (["DTSTART:20261124T230000Z", "DTEND:20261125T020000Z"], ["24T23:00-02:00"]),  # over midnight
        # what leaves the person where they are
        (["DTSTART;VALUE=DATE:20261124"], []),
        (["DTSTART;VALUE=DATE:20261124", "DTEND;VALUE=DATE:20261128"], []),
        (["DTSTART;TZID=Europe/Berlin:20261124T000000", "DTEND;TZID=Europe/Berlin:20261125T000000"], []),
        (["DTSTART:20261124T100000Z", "DTEND:20261124T110000Z", "STATUS:CANCELLED"], []),
        (["DTSTART:20261124T100000Z", "DTEND:20261124T110000Z", "STATUS:TENTATIVE"], []),
        (["DTSTART:20261124T100000Z", "DTEND:20261124T110000Z", "TRANSP:TRANSPARENT"], []),
        (["DTSTART:20261124T100000Z", "DTEND:20261124T110000Z", "X-MICROSOFT-CDO-BUSYSTATUS:FREE"], []),
        (["DTSTART:20261124T100000Z", "DTEND:20261124T100000Z"], []),
        (["DTSTART:20261124T100000Z"], []),
        (["DTSTART:20261201T100000Z", "DTEND:20261201T110000Z"], []),
        # and what does not
        (["DTSTART:20261124T100000Z", "DTEND:20261124T110000Z", "STATUS:CONFIRMED", "TRANSP:OPAQUE",
          "X-MICROSOFT-CDO-BUSYSTATUS:BUSY"], ["24T10:00-11:00"]),
    ],
)  # fmt: skip
def test_one_event(lines: list[str], found: list[str]) -> None:
    assert busy(event(*lines)) == found


def test_a_series_with_exceptions() -> None:
    series = event(
        "DTSTART;TZID=Europe/Berlin:20200106T100000", "DTEND;TZID=Europe/Berlin:20200106T110000",
        "RRULE:FREQ=WEEKLY;BYDAY=MO,TU,WE,TH", "EXDATE;TZID=Europe/Berlin:20261124T100000",
    )  # fmt: skip
    moved = event(
        "RECURRENCE-ID;TZID=Europe/Berlin:20261125T100000", "DTSTART;TZID=Europe/Berlin:20261125T150000",
        "DTEND;TZID=Europe/Berlin:20261125T153000",
    )  # fmt: skip
    cancelled = event(
        "RECURRENCE-ID;TZID=Europe/Berlin:20261126T100000", "DTSTART;TZID=Europe/Berlin:20261126T100000",
        "DTEND;TZID=Europe/Berlin:20261126T110000", "STATUS:CANCELLED",
    )  # fmt: skip
    assert busy(series, moved, cancelled) == ["23T09:00-10:00", "25T14:00-14:30", "30T09:00-10:00"]


def test_a_series_keeps_its_hour_on_the_wall_when_clocks_change() -> None:
    series = event("DTSTART;TZID=Europe/Berlin:20260101T100000", "DURATION:PT1H", "RRULE:FREQ=DAILY")
    start, end = datetime(2026, 10, 24, tzinfo=UTC), datetime(2026, 10, 26, tzinfo=UTC)
    times = busy_times(trimmed(calendar(series), start), start, end, BERLIN)
    assert [each.start.hour for each in times] == [8, 9]


ZONE = """BEGIN:VTIMEZONE
TZID:Our Office
BEGIN:STANDARD
DTSTART:19700101T000000
TZOFFSETFROM:+0545
TZOFFSETTO:+0545
END:STANDARD
END:VTIMEZONE""".replace("\n", "\r\n")


def test_a_zone_that_the_calendar_defines() -> None:
    assert busy(ZONE, event("DTSTART;TZID=Our Office:20261124T100000", "DURATION:PT1H")) == ["24T04:15-05:15"]


def test_meetings_that_touch_are_one_and_events_without_a_name_are_kept_apart() -> None:
    nameless = meeting(25, 8, 9).replace("UID:a@example.com\r\n", "")
    parts = (meeting(24, 10, 12), meeting(24, 11, 13, uid="b"), meeting(24, 13, 14, uid="c"), nameless)
    assert busy(*parts, nameless.replace("T08", "T10").replace("T09", "T11")) == [
        "24T10:00-14:00", "25T08:00-09:00", "25T10:00-11:00",
    ]  # fmt: skip


def test_one_bad_event_does_not_hide_the_others() -> None:
    bad = event("DTSTART:2026112", "DTEND:never", "RRULE:FREQ=SOMETIMES", uid="bad")
    assert busy(bad, meeting(24, 10, 11)) == ["24T10:00-11:00"]


def test_folded_lines_a_byte_order_mark_and_foreign_line_ends() -> None:
    folded = event("DTSTART;TZID=Europe/\r\n Berlin:20261124T1\r\n\t00000", "DURATION:PT1H", "SUMMARY:caf\u00e9")
    content = calendar(folded)
    for text in (
        content,
        b"\xef\xbb\xbf" + content,
        content.replace(b"\r\n", b"\n"),
        content.replace(b"\xc3", b"\xff"),
    ):
        assert len(busy_times(trimmed(text, START), START, END, BERLIN)) == 1


def declined(mail: str, *more: str) -> str:
    return (
        f'ATTENDEE;CN="Doe; PARTSTAT=ACCEPTED: Jo";ROLE=REQ-PARTICIPANT;PARTSTAT=DECLINED{"".join(more)}:mailto:{mail}'
    )


@pytest.mark.parametrize(
    ("attendee", "mine", "found"),
    [
        (declined("Jo@example.com"), "jo@example.com", []),
        (declined("jo@example.com", ";X-NUM-GUESTS=0"), "JO@example.com ", []),
        (declined("jo@example.com"), "", ["24T10:00-11:00"]),  # whose word that is, is not known
        (declined("sam@example.com"), "jo@example.com", ["24T10:00-11:00"]),
        (declined("jo@example.com").replace("DECLINED", "ACCEPTED"), "jo@example.com", ["24T10:00-11:00"]),
        ('ATTENDEE;CN=";PARTSTAT=DECLINED":mailto:jo@example.com', "jo@example.com", ["24T10:00-11:00"]),
        ("ATTENDEE;PARTSTAT=DECLINED;EMAIL=jo@example.com:urn:uuid:1", "jo@example.com", []),
    ],
)
def test_an_invitation_that_the_person_declined_is_no_meeting(attendee: str, mine: str, found: list[str]) -> None:
    content = calendar(meeting(24, 10, 11, attendee, "ATTENDEE;PARTSTAT=ACCEPTED:mailto:other@example.com"))
    times = busy_times(trimmed(content, START, mine), START, END, BERLIN)
    assert [f"{each.start:%dT%H:%M}-{each.end:%H:%M}" for each in times] == found


def test_a_calendar_that_is_named_by_its_owners_address_says_whose_word_it_is() -> None:
    """So do those of Google."""
    assert busy("X-WR-CALNAME:jo@example.com", meeting(24, 10, 11, declined("jo@example.com"))) == []
    assert busy(meeting(24, 10, 11, declined("jo@example.com")), "X-WR-CALNAME:jo@example.com") == []


def test_one_day_of_a_series_is_declined_and_the_others_stay() -> None:
    series = event(
        "DTSTART:20261123T100000Z", "DTEND:20261123T110000Z", "RRULE:FREQ=DAILY;COUNT=3", "STATUS:CONFIRMED"
    )  # fmt: skip
    no = event("RECURRENCE-ID:20261124T100000Z", "DTSTART:20261124T100000Z", "DTEND:20261124T110000Z",
               "STATUS:CONFIRMED", declined("jo@example.com"))  # fmt: skip
    assert busy("X-WR-CALNAME:jo@example.com", series, no) == ["23T10:00-11:00", "25T10:00-11:00"]


# Trimming


@pytest.mark.parametrize(
    ("lines", "kept"),
    [
        (["DTSTART:20200101T100000Z"], False),
        (["DTSTART:20261101T100000Z"], True),
        (["DTSTART:20200101T100000Z", "RRULE:FREQ=DAILY"], True),
        (["DTSTART:20200101T100000Z", "RRULE:FREQ=DAILY;UNTIL=20261231T000000Z"], True),
        (["DTSTART:20200101T100000Z", "RRULE:FREQ=DAILY;UNTIL=20210101T000000Z"], False),
        (["DTSTART:20200101T100000Z", "RRULE:UNTIL=20210101;FREQ=DAILY", "RDATE:20261124T100000Z"], True),
        (["DTSTART:20200101T100000Z", "RECURRENCE-ID:20200101T090000Z"], False),
        (["DTSTART:20200101T100000Z", "RECURRENCE-ID:20261124T090000Z"], True),
        (["DTSTART:20200101T100000Z", "RECURRENCE-ID;RANGE=THISANDFUTURE:20200101T090000Z"], True),
        (["SUMMARY:never"], False),
    ],
)
def test_what_can_no_longer_matter_is_left_out(lines: list[str], kept: bool) -> None:
    assert ("BEGIN:VEVENT" in trimmed(calendar(event(*lines)), START)) == kept


def test_titles_people_and_alarms_are_gone_before_anything_reads_them() -> None:
    alarm = "BEGIN:VALARM\r\nDTSTART:19990101T000000Z\r\nTRIGGER:-PT5M\r\nEND:VALARM"
    secret = meeting(24, 10, 11, "SUMMARY:Redundancies", "DESCRIPTION:a\r\n b", "ATTENDEE;CN=Bob:mailto:b@x", alarm)
    text = trimmed(calendar(secret, secret.replace("VEVENT", "VTODO")), START)
    assert [line for line in text.split("\r\n") if line] == [
        "BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//test//EN",
        "BEGIN:VEVENT", "UID:a@example.com", "DTSTART:20261124T100000Z", "DTEND:20261124T110000Z", "END:VEVENT",
        "END:VCALENDAR",
    ]  # fmt: skip


def test_ten_years_of_meetings_that_are_over_are_not_read() -> None:
    old = [meeting(24, 10, 11, uid=str(i)).replace(":2026", f":{2010 + i % 10}") for i in range(2 * MOST_EVENTS)]
    assert busy(*old, meeting(24, 10, 11)) == ["24T10:00-11:00"]


@pytest.mark.parametrize("content", [b"", b"<html>Sign in</html>", b"\x00" * 100, b"BEGIN:VCARD\r\nEND:VCARD"])
def test_what_is_no_calendar_is_said_to_be_none(content: bytes) -> None:
    with pytest.raises(SensorFault, match="it is no calendar"):
        trimmed(content, NOON)


def test_too_many_events_are_refused() -> None:
    with pytest.raises(SensorFault, match=f"more than {MOST_EVENTS} events"):
        trimmed(calendar(*[meeting(24, 10, 11, uid=str(i)) for i in range(MOST_EVENTS + 1)]), START)
