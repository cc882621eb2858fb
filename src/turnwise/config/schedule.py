"""The section `[schedule]`: when the person is away, and where that is read from (see schedule.md)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import time
from typing import Annotated
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, Field, PlainSerializer, field_validator

from turnwise.config.sections import LOOPBACK, Section
from turnwise.patterns import anchored

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
GOOGLE = "google"
"""What `schedule.calendar` says for a calendar that is asked with the person's leave, by OAuth."""
CALDAV = "caldavs"
HIDDEN_PATH = "/hidden"
"""What stands in place of the path of a calendar's address: in "secret addresses" it is the password."""
_SECURE = {"https": "https", "webcal": "https", "webcals": "https", CALDAV: "https"}
_ON_LOOPBACK = {"http": "http", "caldav": "http"}

_SPAN = anchored(r"(?:(?P<first>[a-z]{3})(?:-(?P<last>[a-z]{3}))?\s+)?(?P<start>\d\d?:\d\d)\s*-\s*(?P<end>\d\d?:\d\d)")


@dataclass(frozen=True)
class SleepSpan:
    """Hours that begin on some weekdays (0 is Monday); `end` at or before `start` is on the next day."""

    start: time
    end: time
    days: frozenset[int] = frozenset(range(7))


def sleep_span(text: str) -> SleepSpan:
    """A span as it is written: "23:00-07:00", "mon-fri 23:00-07:00", "sun 00:00-24:00". Raises ValueError."""
    how = "write it as '23:00-07:00' or 'mon-fri 23:00-07:00'"
    found = _SPAN.fullmatch(text.strip().lower())
    if found is None:
        raise ValueError(f"{text!r} is no span of hours; {how}")
    start, end = _minutes(found["start"], text), _minutes(found["end"], text)
    if start == end or start == 24 * 60:
        raise ValueError(f"{text!r} has no length; {how}, or a whole day as '00:00-24:00'")
    first = found["first"] or "mon"
    last = found["last"] or found["first"] or "sun"
    for day in (first, last):
        if day not in DAYS:
            raise ValueError(f"{day!r} in {text!r} is no weekday; the days are {', '.join(DAYS)}")
    begins, ends = DAYS.index(first), DAYS.index(last)
    days = frozenset((begins + i) % 7 for i in range((ends - begins) % 7 + 1))
    return SleepSpan(_time(start), _time(end), days)


def _minutes(clock: str, text: str) -> int:
    hours, minutes = map(int, clock.split(":"))
    if minutes > 59 or hours * 60 + minutes > 24 * 60:
        raise ValueError(f"{clock} in {text!r} is no time of day; they go from 00:00 to 24:00")
    return hours * 60 + minutes


def _time(minutes: int) -> time:
    return time(minutes // 60 % 24, minutes % 60)


def zone_named(name: str) -> ZoneInfo | None:
    """A time zone by its IANA name; None, the machine's own, for "". Raises ValueError."""
    if not name:
        return None
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # a name that is none, a path, a folder of zones
        raise ValueError(f"{name!r} is no time zone; write its name, such as 'Europe/Berlin'") from None


def calendar_address(text: str) -> str:
    """Where a calendar is, with the scheme it is fetched by. Raises ValueError, which never shows the address."""
    scheme, separator, rest = text.partition("://")
    scheme = scheme.lower()
    if not separator:
        return text
    known = _SECURE | _ON_LOOPBACK
    if scheme not in known:
        raise ValueError("is neither a file's path, nor begins with https://, webcal://, caldavs:// or is 'google'")
    address = f"{known[scheme]}://{rest}"
    try:
        parts = urlsplit(address)
        host = parts.hostname
        _ = parts.port
    except ValueError:
        raise ValueError("is no address: its host or port cannot be read") from None
    if not host:
        raise ValueError("is no address: it has no host; write it as https://host/calendar.ics")
    if parts.username is not None or parts.password is not None:
        raise ValueError("has a name or password in it; see schedule.calendar_user and schedule.calendar_password_env")
    if scheme in _ON_LOOPBACK and host not in LOOPBACK:
        raise ValueError("would be read without encryption; only an address of this machine may begin with http://")
    return address


def is_caldav(text: str) -> bool:
    """Whether a setting names a calendar on a CalDAV server, not a file that is fetched whole."""
    return text.partition("://")[0].lower() in (CALDAV, "caldav") and "://" in text


def shown_address(text: str) -> str:
    """A calendar's address as it may be shown: no path and no query, which may be all that keeps it private."""
    if "://" not in text:
        return text
    scheme = text.partition("://")[0].lower()
    return f"{scheme}://{urlsplit(calendar_address(text)).netloc}{HIDDEN_PATH}"


def _checked_address(text: str) -> str:
    calendar_address(text.strip())
    return text.strip()


CalendarAddress = Annotated[str, AfterValidator(_checked_address), PlainSerializer(shown_address)]


class ScheduleConfig(Section):
    """When the person is away, so that the trainer may work (see schedule.md)."""

    sleep: tuple[str, ...] = Field(
        default=(), description='Hours of sleep, such as `["sun-thu 23:00-07:00", "fri-sat 01:00-09:00"]`.'
    )
    zone: str = Field(
        default="", description="Time zone of these hours, such as 'Europe/Berlin'; empty: the machine's."
    )
    idle_min: float = Field(
        default=30.0,
        ge=0,
        description="Minutes without keyboard and mouse after which the person is away; 0: they are not looked at.",
    )
    quiet_min: float = Field(
        default=10.0, ge=1, description="Minutes without a request after which the gateway says that it is quiet."
    )
    calendar: CalendarAddress = Field(
        default="",
        repr=False,
        description="Calendar whose meetings mean that the person is away: an .ics file, its https:// address, "
        "a caldavs:// address, or 'google'; empty: none.",
    )
    calendar_user: str = Field(default="", description="Name to sign in with at the calendar's address.")
    calendar_password_env: str = Field(
        default="TURNWISE_CALENDAR_PASSWORD", description="Environment variable with the password there."
    )
    calendar_mail: str = Field(
        default="",
        description="Your address in invitations, so that those you declined count as no meetings; empty: "
        "`calendar_user`, or the calendar's own name where that is an address.",
    )
    google_client_id: str = Field(
        default="", description="Id of your own 'desktop app' client at Google, for `turnwise schedule connect google`."
    )
    google_client_secret_env: str = Field(
        default="TURNWISE_GOOGLE_CLIENT_SECRET", description="Environment variable with that client's secret."
    )

    @field_validator("sleep", mode="before")
    @classmethod
    def _from_one_text(cls, given: object) -> object:
        return [part.strip() for part in given.split(",") if part.strip()] if isinstance(given, str) else given

    @field_validator("sleep")
    @classmethod
    def _spans_alone(cls, spans: tuple[str, ...]) -> tuple[str, ...]:
        for span in spans:
            sleep_span(span)
        return spans

    @field_validator("zone")
    @classmethod
    def _a_zone(cls, name: str) -> str:
        zone_named(name)
        return name

    @property
    def sleep_spans(self) -> tuple[SleepSpan, ...]:
        """The hours of sleep, read."""
        return tuple(map(sleep_span, self.sleep))

    @property
    def zone_info(self) -> ZoneInfo | None:
        """The zone of these hours; None is the machine's own."""
        return zone_named(self.zone)
