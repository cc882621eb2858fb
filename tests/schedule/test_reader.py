"""A calendar is fetched now and then from a real server, kept for when it is out of reach, and never shown."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.schedule.calendars import NOON, calendar, meeting
from tests.support.servers import running
from turnwise.config import Config, load_config
from turnwise.errors import SensorFault
from turnwise.schedule.calendar import fetching
from turnwise.schedule.calendar.fetching import answered, stays_secure
from turnwise.schedule.calendar.meetings import Meetings
from turnwise.schedule.calendar.reader import REFRESH, calendar_reader
from turnwise.schedule.sensor import sensors_of
from turnwise.schedule.window import SensorOpinion

SECRET = "private-0123456789"


class CalendarServer:
    """Serves one calendar with an ETag, and can be told to misbehave."""

    def __init__(self) -> None:
        self.content = calendar(meeting(23, 11, 13), meeting(26, 9, 10, uid="b"))
        self.mood = ""
        self.asked: list[str | None] = []

    async def answer(self, request: Request) -> Response:
        self.asked.append(request.headers.get("if-none-match"))
        match self.mood:
            case "":
                if self.asked[-1] == '"1"':
                    return Response(status_code=304)
                return PlainTextResponse(self.content.decode(), headers={"ETag": '"1"'})
            case "drips":
                return StreamingResponse(self._for_ever(b"X", 0.05))
            case "floods":
                return StreamingResponse(self._for_ever(b"X" * (1 << 20), 0.0))
            case "away":
                return RedirectResponse("/elsewhere")
            case "circle":
                return RedirectResponse(str(request.url))
            case status:
                return PlainTextResponse("no", status_code=int(status))

    async def elsewhere(self, request: Request) -> Response:
        return PlainTextResponse(self.content.decode())

    async def _for_ever(self, chunk: bytes, pause_s: float) -> Any:
        while True:
            yield chunk
            await asyncio.sleep(pause_s)


@contextmanager
def served() -> Iterator[tuple[CalendarServer, str]]:
    server = CalendarServer()
    routes = [Route(f"/{SECRET}/c.ics", server.answer), Route("/elsewhere", server.elsewhere)]
    with running(Starlette(routes=routes)) as url:
        yield server, f"{url}/{SECRET}/c.ics"


def configured(home: Path, calendar: str | Path, **more: object) -> Config:
    given = {f"schedule.{key}": value for key, value in more.items()}
    return load_config(overrides={"home": home, "schedule.calendar": str(calendar), "schedule.idle_min": 0} | given)


def test_it_is_fetched_once_and_then_asked_whether_it_changed(home: Path) -> None:
    with served() as (server, url):
        [sensor] = sensors_of(configured(home, url, zone="UTC"))
        reading = sensor.read(NOON)
        assert (reading.opinion, reading.why) == (SensorOpinion.OPENS, "In a meeting until 13:00.")
        sensor.read(NOON + timedelta(minutes=5))
        assert server.asked == [None]
        later = sensor.read(NOON + timedelta(hours=1))
        assert (later.opinion, later.why) == (SensorOpinion.NONE, "No meeting now; the next begins Thu 09:00.")
        assert server.asked == [None, '"1"']
        sensor.read(NOON + timedelta(hours=13))  # the days that have come into view need the whole
        assert server.asked[-1] is None


def test_what_was_read_counts_while_the_server_is_out_of_reach_and_after_a_restart(home: Path) -> None:
    with served() as (_, url):
        calendar_reader(configured(home, url)).busy(NOON)
    reader = calendar_reader(configured(home, url))  # another process, and nobody listens there any more
    reading = Meetings(reader, None).read(NOON + timedelta(minutes=45))
    assert reading.opinion is SensorOpinion.OPENS
    assert "As of 0.8 hours ago: 127.0.0.1 cannot be reached (ConnectError)." in reading.why
    gone = Meetings(reader, None).read(NOON + timedelta(days=10))
    assert gone.opinion is SensorOpinion.NONE and "cannot be reached" in gone.why
    assert SECRET not in reading.why + gone.why


def test_what_was_kept_of_another_calendar_is_not_used(home: Path, tmp_path: Path) -> None:
    (tmp_path / "c.ics").write_bytes(calendar(meeting(23, 11, 13)))
    calendar_reader(configured(home, tmp_path / "c.ics")).busy(NOON)
    with pytest.raises(SensorFault, match="No such file"):
        calendar_reader(configured(home, tmp_path / "other.ics")).busy(NOON)


@pytest.mark.parametrize("kept", ["", "{}", "[1]", '{"of": 3}', "\x00", '{"busy": [[1]]}', "[" * 100_000])
def test_a_broken_file_in_the_home_is_made_anew(home: Path, tmp_path: Path, kept: str) -> None:
    (tmp_path / "c.ics").write_bytes(calendar(meeting(23, 11, 13)))
    home.mkdir()
    (home / "calendar.json").write_text(kept)
    assert len(calendar_reader(configured(home, tmp_path / "c.ics")).busy(NOON).busy) == 1
    assert json.loads((home / "calendar.json").read_text())["busy"]


def test_a_file_that_changes_is_read_again(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "c.ics"
    file.write_bytes(calendar())
    reader = calendar_reader(configured(home, file))
    assert reader.busy(NOON).busy == ()
    file.write_bytes(calendar(meeting(23, 11, 13)))
    assert len(reader.busy(NOON + REFRESH).busy) == 1


@pytest.mark.parametrize(
    ("mood", "words"),
    [
        ("404", "127.0.0.1 answered with status 404; copy the calendar's address anew"),
        ("401", "status 401; see schedule.calendar_user"),
        ("500", "status 500"),
        ("drips", "did not answer within 1 seconds"),
        ("floods", "127.0.0.1 sent more than 10 MB"),
        ("circle", "cannot be reached .TooManyRedirects"),
    ],
)
def test_a_server_that_misbehaves(home: Path, monkeypatch: pytest.MonkeyPatch, mood: str, words: str, caplog) -> None:
    if mood == "drips":
        monkeypatch.setattr(fetching, "LIMIT_S", 1.0)
    with served() as (server, url):
        server.mood = mood
        with caplog.at_level(logging.WARNING), pytest.raises(SensorFault, match=words) as raised:
            calendar_reader(configured(home, url)).busy(NOON)
    assert SECRET not in str(raised.value) + caplog.text


def test_a_redirect_is_followed(home: Path) -> None:
    with served() as (server, url):
        server.mood = "away"
        assert len(calendar_reader(configured(home, url)).busy(NOON).busy) == 2


async def test_a_redirect_never_leads_from_encryption_into_the_open() -> None:
    """The hook that every request passes, by value: a server with a certificate is not at hand."""

    await stays_secure(True, httpx.Request("GET", "https://b.example/"))
    await stays_secure(False, httpx.Request("GET", "http://127.0.0.1/"))
    with pytest.raises(SensorFault, match=r"b\.example would be asked without encryption"):
        await stays_secure(True, httpx.Request("GET", "http://b.example/"))


def test_a_host_that_is_none() -> None:
    with pytest.raises(SensorFault, match="cannot be reached"):
        answered("GET", "http://127.0.0.1:1/c")
    for url in ("https://exa\x07mple/c", "https://" + "a" * 300 + ".example/c"):
        with pytest.raises(SensorFault):
            answered("GET", url)
    with pytest.raises(SensorFault):
        answered("GET", "http://127.0.0.1:1/c", headers={"If-None-Match": "\u2603"})


def test_name_and_password_are_sent_where_they_are_given(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str | None] = []

    async def answer(request: Request) -> Response:
        seen.append(request.headers.get("authorization"))
        return PlainTextResponse(calendar().decode())

    monkeypatch.setenv("TURNWISE_CALENDAR_PASSWORD", "open sesame")
    with running(Starlette(routes=[Route("/c.ics", answer)])) as url:
        calendar_reader(configured(home, f"{url}/c.ics", calendar_user="me")).busy(NOON)
    assert seen == ["Basic bWU6b3BlbiBzZXNhbWU="]
