"""A calendar on a CalDAV server (RFC 4791): one question, for the events of some days.

One request does not need a library of the whole protocol, and this way the limits on size and time are ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from xml.etree import ElementTree

from turnwise.errors import SensorFault
from turnwise.schedule.calendar.fetching import Fetched, answered, expect_success, host_of

_DATA = "{urn:ietf:params:xml:ns:caldav}calendar-data"
MOST_XML = 2 << 20
"""Bytes of an answer: it is parsed here, beside the trainer, and not in a process of its own."""
EMPTY = "BEGIN:VCALENDAR\r\nEND:VCALENDAR"
"""What nothing in these days is."""
_QUERY = """<?xml version="1.0" encoding="utf-8"?>
<C:calendar-query xmlns:D="DAV:" xmlns:C="urn:ietf:params:xml:ns:caldav">
  <D:prop><C:calendar-data/></D:prop>
  <C:filter><C:comp-filter name="VCALENDAR"><C:comp-filter name="VEVENT">
    <C:time-range start="{start}" end="{end}"/>
  </C:comp-filter></C:comp-filter></C:filter>
</C:calendar-query>
"""


def from_caldav(url: str, auth: tuple[str, str] | None, start: datetime, end: datetime) -> Fetched:
    """The events that touch some days, series whole. Raises SensorFault."""
    days = {name: at.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ") for name, at in (("start", start), ("end", end))}
    headers = {"Depth": "1", "Content-Type": "application/xml; charset=utf-8"}
    answer = answered("REPORT", url, auth, headers=headers, content=_QUERY.format(**days).encode())
    if answer.status in (405, 501):
        raise SensorFault(f"{host_of(url)} has no calendar there; give the address of the calendar, not of the account")
    expect_success(url, answer)
    return Fetched("\r\n".join((EMPTY, *_calendars(answer.content, host_of(url)))).encode())


def _calendars(content: bytes, host: str) -> Iterator[str]:
    """The calendars in a server's answer. Raises SensorFault for what is none."""
    if len(content) > MOST_XML:
        raise SensorFault(f"{host} sent more than {MOST_XML >> 20} MB of events")
    # Entities that are made of entities are a small text that becomes a huge one. Zeros: an encoding that hides them.
    if b"<!DOCTYPE" in content or b"<!ENTITY" in content or b"\0" in content:
        raise SensorFault(f"{host} sent XML with definitions of its own, which no CalDAV server does")
    try:
        root = ElementTree.fromstring(content)
    except (ElementTree.ParseError, ValueError, LookupError):
        raise SensorFault(f"{host} sent no XML; is the address that of a calendar on a CalDAV server?") from None
    for element in root.iter(_DATA):
        yield element.text or ""
    if not root.tag.endswith("multistatus"):
        raise SensorFault(f"{host} sent no answer of a CalDAV server")
