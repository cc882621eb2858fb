"""CalDAV: against Radicale, a real server, where it is installed; its refusals and hostile answers by a stand-in."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.schedule.calendars import END, NOON, START, calendar, event, meeting
from tests.support.servers import running, wait_until
from turnwise.config import load_config
from turnwise.errors import SensorFault
from turnwise.schedule.calendar.caldav import from_caldav
from turnwise.schedule.sensor import sensors_of
from turnwise.schedule.window import SensorOpinion

ACCOUNT = ("me", "open sesame")
RADICALE = os.environ.get("TURNWISE_RADICALE_PYTHON") or sys.executable
"""A Python that has Radicale; it is no dependency of ours, and GPL."""


@pytest.fixture
def radicale(tmp_path: Path) -> Iterator[str]:
    """A calendar on a server of this test's own."""
    if sys.executable == RADICALE and importlib.util.find_spec("radicale") is None:
        pytest.skip("Radicale is not installed: name a Python that has it as TURNWISE_RADICALE_PYTHON")
    (tmp_path / "users").write_text(":".join(ACCOUNT) + "\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    server = subprocess.Popen(
        [RADICALE, "-m", "radicale", "--hosts", address, "--auth-type", "htpasswd", "--auth-htpasswd-encryption",
         "plain", "--auth-htpasswd-filename", str(tmp_path / "users"), "--storage-filesystem-folder",
         str(tmp_path / "store")],
        stderr=(tmp_path / "log").open("wb"),
    )  # fmt: skip
    try:
        with httpx.Client(base_url=f"http://{address}", auth=ACCOUNT, timeout=10) as client:

            def up() -> bool:
                try:
                    return client.get("/.web/").status_code < 500
                except httpx.TransportError:
                    return False

            wait_until(up)
            assert client.request("MKCALENDAR", "/me/work/").status_code == 201
            far = event("DTSTART:20200106T110000Z", "DURATION:PT2H", "RRULE:FREQ=WEEKLY;BYDAY=MO", uid="series")
            for name, part in {"a": meeting(24, 10, 11, uid="a"), "s": far}.items():
                put = client.put(
                    f"/me/work/{name}.ics", content=calendar(part), headers={"Content-Type": "text/calendar"}
                )
                assert put.status_code == 201, put.text
        yield f"caldav://{address}/me/work/"
    finally:
        server.terminate()
        server.wait(20)


def test_a_real_server_is_asked_for_these_days(radicale: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"calendar": radicale, "calendar_user": "me", "idle_min": 0, "zone": "UTC"}
    config = load_config(overrides={"home": home} | {f"schedule.{key}": value for key, value in given.items()})
    [sensor] = sensors_of(config)
    monkeypatch.setenv("TURNWISE_CALENDAR_PASSWORD", "wrong")
    assert "status 401; see schedule.calendar_user" in sensor.read(NOON).why
    monkeypatch.setenv("TURNWISE_CALENDAR_PASSWORD", ACCOUNT[1])
    [sensor] = sensors_of(config)
    reading = sensor.read(NOON)
    assert (reading.opinion, reading.why) == (SensorOpinion.OPENS, "In a meeting until 13:00.")


def answer_with(content: bytes, status: int = 207) -> Starlette:
    async def answer(request: Request) -> Response:
        assert request.method == "REPORT" and request.headers["depth"] == "1"
        assert b'start="20261122T000000Z" end="20261201T000000Z"' in await request.body()
        return Response(content, status, media_type="application/xml")

    return Starlette(routes=[Route("/c/", answer, methods=["REPORT"])])


NOTHING = b'<?xml version="1.0"?><multistatus xmlns="DAV:"/>'
BOMB = b'<!DOCTYPE a [<!ENTITY a "x"><!ENTITY b "&a;&a;">]><multistatus xmlns="DAV:">&b;</multistatus>'


@pytest.mark.parametrize(
    ("content", "status", "words"),
    [
        (BOMB, 207, "XML with definitions of its own"),
        (BOMB.decode().encode("utf-16"), 207, "XML with definitions of its own"),
        (b"<a>" + b"<b/>" * (1 << 19) + b"</a>", 207, "more than 2 MB"),
        (b"<html>Sign in", 207, "127.0.0.1 sent no XML"),
        (b"<html>Sign in</html>", 200, "no answer of a CalDAV server"),
        (b"", 405, "give the address of the calendar, not of the account"),
        (b"", 403, "status 403"),
    ],
)
def test_what_is_no_answer(content: bytes, status: int, words: str) -> None:
    with running(answer_with(content, status)) as url, pytest.raises(SensorFault, match=words):
        from_caldav(f"{url}/c/", None, START, END)


def test_no_events_are_an_empty_calendar() -> None:
    with running(answer_with(NOTHING)) as url:
        assert from_caldav(f"{url}/c/", None, START, END).content.startswith(b"BEGIN:VCALENDAR")
