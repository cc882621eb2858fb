"""Calendars for tests, and the times of the week that they are about."""

from __future__ import annotations

from datetime import UTC, datetime

START, END = datetime(2026, 11, 22, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC)
NOON = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
"""A Monday."""


def event(*lines: str, uid: str = "a@example.com") -> str:
    return "\r\n".join(["BEGIN:VEVENT", f"UID:{uid}", "DTSTAMP:20261101T000000Z", *lines, "END:VEVENT"])


def calendar(*parts: str) -> bytes:
    return "\r\n".join(["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//test//EN", *parts, "END:VCALENDAR", ""]).encode()


def meeting(day: int, start: int, end: int, *lines: str, uid: str = "a@example.com") -> str:
    """One of November 2026, by hours in UTC."""
    return event(f"DTSTART:202611{day}T{start:02}0000Z", f"DTEND:202611{day}T{end:02}0000Z", *lines, uid=uid)
