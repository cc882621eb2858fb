"""Cuts a calendar's text (RFC 5545) down to the lines that say when somebody is busy.

One pass over the lines, by hand: titles, descriptions and attendees are gone before anything else sees the text,
and so is what a hostile file would overwhelm a parser with. Events that can no longer matter are left out, since ten
years of a busy person take a parser half a minute.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from turnwise.errors import SensorFault

MOST_EVENTS = 5_000
"""Events that may still matter. A parser takes a millisecond or two for each."""
MOST_IN_A_LINE = 100_000
"""Characters of one property: a series with thousands of exceptions."""
PAST = timedelta(days=40)
"""An event without a series that began so long ago is over, or is no meeting."""

_WHEN = ("DTSTART", "DTEND", "DURATION", "RRULE", "RDATE", "EXDATE", "RECURRENCE-ID", "SEQUENCE")
_HOW = ("STATUS", "TRANSP", "X-MICROSOFT-CDO-BUSYSTATUS")
_OF_EVENT = frozenset(("BEGIN", "END", "UID", *_WHEN, *_HOW))
_OF_ZONE = frozenset(("BEGIN", "END", "TZID", "DTSTART", "TZOFFSETFROM", "TZOFFSETTO", "RRULE", "RDATE", "TZNAME"))
_OF_CALENDAR = frozenset(("VERSION", "PRODID", "X-WR-TIMEZONE"))
_ZONE_PARTS = frozenset(("STANDARD", "DAYLIGHT"))


def trimmed(content: bytes, now: datetime, mine: str = "") -> str:
    """The calendar with its events' times alone, as a calendar. Raises SensorFault for what is none, or too much.

    What the person declined, whose address is `mine` or the calendar's name, is as good as cancelled.
    """
    text = content.decode("utf-8-sig", errors="replace")
    kept: list[tuple[list[str], set[str]]] = []  # of each event what is kept, and who declined it
    named = ""
    zones: dict[str, None] = {}  # each once, in order: a server sends them with every event
    head: dict[str, str] = {}
    earliest = f"{now - PAST:%Y%m%d}"
    events = 0
    for path, lines in _components(text):
        if path == "VCALENDAR":
            head |= {_name(line): line for line in lines if _name(line) in _OF_CALENDAR}
            named = next((line.partition(":")[2] for line in lines if _name(line) == "X-WR-CALNAME"), named)
        elif path == "VEVENT":
            event = [line for line in lines if _name(line) in _OF_EVENT]
            if not _over(event, earliest):
                events += 1
                kept.append((event, {who for line in lines if (who := _declined_by(line))}))
        elif path == "VTIMEZONE":
            zones["\r\n".join(line for line in lines if _name(line) in _OF_ZONE)] = None
        if events > MOST_EVENTS:
            raise SensorFault(f"it has more than {MOST_EVENTS} events that may still matter")
    if not head and not kept and not zones and "BEGIN:VCALENDAR" not in text[:1000].upper():
        raise SensorFault("it is no calendar: it does not begin with BEGIN:VCALENDAR")
    for name, value in (("VERSION", "2.0"), ("PRODID", "-//turnwise//schedule//EN")):
        head.setdefault(name, f"{name}:{value}")
    me = {address.strip().lower() for address in (mine, named)}
    events_left = [line for event, no in kept for line in (event if no.isdisjoint(me) else _cancelled(event))]
    return "\r\n".join(["BEGIN:VCALENDAR", *head.values(), *zones, *events_left, "END:VCALENDAR", ""])


def _declined_by(line: str) -> str:
    """The address of who declined, of a line of that kind; "" for any other."""
    if _name(line) != "ATTENDEE":
        return ""
    bare = "".join(line.split('"')[::2])  # without what is quoted: a name may have any sign in it
    parameters, _, address = bare.partition(":")
    split = [part.partition("=") for part in parameters.upper().split(";")[1:]]
    given = {name: value for name, _, value in split}
    if given.get("PARTSTAT") != "DECLINED":
        return ""
    return (given.get("EMAIL") or address.upper().removeprefix("MAILTO:")).strip().lower()


def _cancelled(event: list[str]) -> list[str]:
    """The event as one that does not take place. It stays: of a series it stands for one that is not held then."""
    return [event[0], "STATUS:CANCELLED", *(line for line in event[1:] if _name(line) != "STATUS")]


def _components(text: str) -> Iterator[tuple[str, list[str]]]:
    """The calendar's own lines, each event's and each zone's, with their BEGIN and END; all else is left out.

    What stands within an event (an alarm) and in components that are not known is passed over however deep it is.
    """
    calendar: list[str] = []
    inside, lines, depth, in_part = "", [], 0, False
    for line in _unfolded(text):
        name = _name(line)
        value = line.partition(":")[2].strip().upper() if name in ("BEGIN", "END") else ""
        if not inside:
            if name == "BEGIN" and value != "VCALENDAR":
                inside, lines, depth, in_part = value, [f"BEGIN:{value}"], 0, False
            elif name not in ("BEGIN", "END"):
                calendar.append(line)
        elif name == "BEGIN":
            if inside == "VTIMEZONE" and value in _ZONE_PARTS and depth == 0 and not in_part:
                in_part = True
                lines.append(f"BEGIN:{value}")
            else:
                depth += 1
        elif name == "END" and depth:
            depth -= 1
        elif name == "END":
            lines.append(f"END:{value}")
            if value == inside:
                yield inside, lines
                inside = ""
            elif in_part and value in _ZONE_PARTS:
                in_part = False
            else:
                inside = ""  # what ends is not what began: nothing is made of it
        elif not depth:
            lines.append(line)
    yield "VCALENDAR", calendar


def _unfolded(text: str) -> Iterator[str]:
    """The lines, with those joined that were broken for their length."""
    parts: list[str] = []
    length = 0
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        if not line:
            continue
        if line[:1] in (" ", "\t") and parts:
            length += len(line)
            if length <= MOST_IN_A_LINE:
                parts.append(line[1:])
            continue
        if parts and length <= MOST_IN_A_LINE:
            yield "".join(parts)
        parts, length = [line], len(line)
    if parts and length <= MOST_IN_A_LINE:
        yield "".join(parts)


def _name(line: str) -> str:
    """A line's property, such as DTSTART of `DTSTART;TZID=Europe/Berlin:20261123T100000`."""
    return line.partition(":")[0].partition(";")[0].strip().upper()


def _over(event: list[str], earliest: str) -> bool:
    """Whether all of an event was before that day, YYYYMMDD; one without a start is nothing."""
    told = {_name(line): line for line in event}
    if "DTSTART" not in told:
        return True
    if "RDATE" in told or "RANGE=" in told.get("RECURRENCE-ID", "").upper():
        return False
    last = [_day(told[name]) for name in ("DTSTART", "RECURRENCE-ID") if name in told]
    if "RRULE" in told:
        _, until, day = told["RRULE"].upper().partition("UNTIL=")
        last = [day[:8]] if until else []
    return all(day < earliest for day in last) if last else False


def _day(line: str) -> str:
    return line.rpartition(":")[2].strip()[:8]
