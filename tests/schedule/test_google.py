"""Google Calendar, against a local stand-in of Google's endpoints (consent, token, free/busy): not against Google.

The stand-in checks what Google would: the client, the proof (PKCE) of who asked, the scope, and the access token.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from tests.schedule.calendars import END, START
from tests.support.servers import running
from turnwise.errors import SensorFault
from turnwise.schedule.calendar import google
from turnwise.schedule.calendar.google import GoogleAddresses, GoogleClient, busy_at_google, connect

CLIENT = GoogleClient("me.apps.example", "not-so-secret")
SCOPE = "https://www.googleapis.com/auth/calendar.freebusy"


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(google, "CONSENT_S", 30.0)


class FakeGoogle:
    """What Google's three endpoints do, as far as it is asked of them."""

    def __init__(self) -> None:
        self.declines = False
        self.revoked = False
        self.busy: Any = [
            {"start": "2026-11-24T10:00:00Z", "end": "2026-11-24T11:00:00Z"},
            {"start": "2026-11-25T00:00:00+01:00", "end": "2026-11-26T00:00:00+01:00"},  # a whole day
            {"start": "2026-11-26T10:00:00+01:00", "end": "2026-11-26T11:00:00+01:00"},
        ]
        self._challenge = ""
        self._redirect = ""

    async def consent(self, request: Request) -> Response:
        asked = dict(request.query_params)
        assert (asked["client_id"], asked["scope"], asked["code_challenge_method"]) == (CLIENT.id, SCOPE, "S256")
        assert asked["response_type"] == "code" and asked["access_type"] == "offline"
        self._challenge, self._redirect = asked["code_challenge"], asked["redirect_uri"]
        told = {"error": "access_denied"} if self.declines else {"code": "4/abc"}
        return RedirectResponse(f"{self._redirect}?{urlencode(told | {'state': asked['state']})}")

    async def token(self, request: Request) -> Response:
        form = {name: values[0] for name, values in parse_qs((await request.body()).decode()).items()}
        if (form["client_id"], form["client_secret"]) != (CLIENT.id, CLIENT.secret):
            return JSONResponse({"error": "invalid_client"}, 401)
        if form["grant_type"] == "refresh_token":
            known = form["refresh_token"] == "1//lasting" and not self.revoked
            return JSONResponse(
                {"access_token": "ya29.x"} if known else {"error": "invalid_grant"}, 200 if known else 400
            )
        proof = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).rstrip(b"=")
        if (form["code"], form["redirect_uri"], proof.decode()) != ("4/abc", self._redirect, self._challenge):
            return JSONResponse({"error": "invalid_grant"}, 400)
        return JSONResponse({"access_token": "ya29.x", "refresh_token": "1//lasting", "expires_in": 3599})

    async def free_busy(self, request: Request) -> Response:
        assert request.headers["authorization"] == "Bearer ya29.x"
        asked = await request.json()
        assert asked == {
            "timeMin": "2026-11-22T00:00:00Z",
            "timeMax": "2026-12-01T00:00:00Z",
            "items": [{"id": "primary"}],
        }
        return JSONResponse({"calendars": {"primary": {"busy": self.busy}}})


@contextmanager
def fake_google() -> Iterator[tuple[FakeGoogle, GoogleAddresses]]:
    fake = FakeGoogle()
    routes = [Route("/auth", fake.consent), Route("/token", fake.token, methods=["POST"]),
              Route("/freeBusy", fake.free_busy, methods=["POST"])]  # fmt: skip
    with running(Starlette(routes=routes)) as url:
        yield fake, GoogleAddresses(f"{url}/auth", f"{url}/token", f"{url}/freeBusy")


def browser(url: str) -> None:
    """A browser whose person agrees; it also asks for an icon, and another page tries to slip in a code."""

    def visit() -> None:
        back = parse_qs(urlsplit(url).query)["redirect_uri"][0]
        assert httpx.get(f"{back}/favicon.ico").status_code == 404
        assert httpx.get(f"{back}/?code=4/evil&state=guessed").status_code == 404
        assert httpx.get(f"{back}/?code=4/evil").status_code == 404
        assert httpx.get(url, follow_redirects=True).status_code == 200

    threading.Thread(target=visit, daemon=True).start()


def test_leave_is_given_kept_and_used(tmp_path: Path) -> None:
    kept = tmp_path / "home" / "google-calendar.json"
    with fake_google() as (_, at):
        connect(CLIENT, kept, browser, at)
        assert kept.stat().st_mode & 0o777 == 0o600
        busy = busy_at_google(kept, START, END, at)
    assert [each.start for each in busy] == [
        datetime(2026, 11, 24, 10, tzinfo=UTC),
        datetime(2026, 11, 26, 9, tzinfo=UTC),
    ]


def test_a_person_who_declines(tmp_path: Path) -> None:
    with fake_google() as (fake, at):
        fake.declines = True
        with pytest.raises(SensorFault, match="you declined"):
            connect(CLIENT, tmp_path / "t.json", browser, at)
    assert not (tmp_path / "t.json").exists()


def test_a_person_who_never_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(google, "CONSENT_S", 0.3)
    with pytest.raises(SensorFault, match="nobody agreed within"):
        connect(CLIENT, tmp_path / "t.json", lambda url: None, GoogleAddresses())


def test_a_wrong_secret(tmp_path: Path) -> None:
    with fake_google() as (_, at), pytest.raises(SensorFault, match=r"Google refused \(invalid_client\)"):
        connect(GoogleClient(CLIENT.id, "wrong"), tmp_path / "t.json", browser, at)


def kept_token(tmp_path: Path) -> Path:
    file = tmp_path / "t.json"
    file.write_text(json.dumps({"client_id": CLIENT.id, "client_secret": CLIENT.secret, "refresh_token": "1//lasting"}))
    return file


def test_leave_that_was_taken_back(tmp_path: Path) -> None:
    with fake_google() as (fake, at):
        fake.revoked = True
        with pytest.raises(SensorFault, match=r"\(invalid_grant\); run `turnwise schedule connect google`"):
            busy_at_google(kept_token(tmp_path), START, END, at)


def test_without_leave_it_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SensorFault, match="not been asked for leave yet; run `turnwise schedule connect google`"):
        busy_at_google(tmp_path / "none.json", START, END)
    (tmp_path / "t.json").write_text("[" * 100_000)
    with pytest.raises(SensorFault, match="cannot be read; run"):
        busy_at_google(tmp_path / "t.json", START, END)


@pytest.mark.parametrize(
    "busy", [3, [3], [{}], [{"start": "x", "end": "y"}], [{"start": "2026-11-24T10:00", "end": "2026-11-24T11:00"}]]
)
def test_an_answer_that_cannot_be_read(tmp_path: Path, busy: Any) -> None:
    with fake_google() as (fake, at):
        fake.busy = busy
        with pytest.raises(SensorFault, match="cannot be read"):
            busy_at_google(kept_token(tmp_path), START, END, at)
