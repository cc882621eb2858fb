"""Google Calendar: when the person is busy, and nothing else; asked with a key that the person can take back.

The scope is the least there is: Google tells times, never titles. What `connect` leaves in the home is a refresh token,
readable by its owner alone. Google's flow for devices without a browser does not give calendars away, so it is the one
for desktop programs (RFC 8252): a browser, an answer on loopback, a proof (PKCE, RFC 7636).
"""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from turnwise.errors import SensorFault
from turnwise.files import write_atomically
from turnwise.schedule.calendar.busy import Busy, is_meeting, joined
from turnwise.schedule.calendar.fetching import ServerAnswer, answered

SCOPE = "https://www.googleapis.com/auth/calendar.freebusy"
CONNECT = "run `turnwise schedule connect google`"
CONSENT_S = 300.0
"""How long the person has to agree in the browser."""
_ANSWERED = b"<!doctype html><title>turnwise</title><p>Done. You can close this page.</p>"


@dataclass(frozen=True)
class GoogleAddresses:
    """Where Google listens; tests have a stand-in."""

    consent: str = "https://accounts.google.com/o/oauth2/v2/auth"
    token: str = "https://oauth2.googleapis.com/token"
    free_busy: str = "https://www.googleapis.com/calendar/v3/freeBusy"


@dataclass(frozen=True)
class GoogleClient:
    """The person's own client, made in Google's console as a "desktop app"."""

    id: str
    secret: str


def connect(client: GoogleClient, kept: Path, show: Callable[[str], None], at: GoogleAddresses | None = None) -> None:
    """Have the person agree in a browser and keep the token. `show` gets the address to open. Raises SensorFault."""
    at = at or GoogleAddresses()
    proof, state = secrets.token_urlsafe(48), secrets.token_urlsafe(24)
    challenge = base64.urlsafe_b64encode(hashlib.sha256(proof.encode()).digest()).rstrip(b"=").decode()
    with _Listener(state) as listener:
        query = {
            "client_id": client.id, "redirect_uri": listener.address, "response_type": "code", "scope": SCOPE,
            "access_type": "offline", "prompt": "consent", "state": state, "code_challenge": challenge,
            "code_challenge_method": "S256",
        }  # fmt: skip
        show(f"{at.consent}?{urlencode(query)}")
        code = listener.wait(CONSENT_S)
    told = _token(
        at, client, {"grant_type": "authorization_code", "code": code, "code_verifier": proof,
                     "redirect_uri": listener.address},
    )  # fmt: skip
    refresh = told.get("refresh_token")
    if not isinstance(refresh, str):
        raise SensorFault("Google gave no lasting leave; take turnwise out of your account's connections and try again")
    keep = {"client_id": client.id, "client_secret": client.secret, "refresh_token": refresh}
    kept.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(kept, json.dumps(keep).encode())


def busy_at_google(kept: Path, start: datetime, end: datetime, at: GoogleAddresses | None = None) -> list[Busy]:
    """The busy times of the person's own calendar. Raises SensorFault."""
    at = at or GoogleAddresses()
    try:
        token = json.loads(kept.read_bytes())
        client, refresh = GoogleClient(token["client_id"], token["client_secret"]), token["refresh_token"]
    except FileNotFoundError:
        raise SensorFault(f"Google has not been asked for leave yet; {CONNECT}") from None
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        raise SensorFault(f"{kept} cannot be read; {CONNECT}") from None
    access = _token(at, client, {"grant_type": "refresh_token", "refresh_token": refresh}).get("access_token")
    asked = {"timeMin": _stamp(start), "timeMax": _stamp(end), "items": [{"id": "primary"}]}
    headers = {"Authorization": f"Bearer {access}"}
    answer = answered("POST", at.free_busy, headers=headers, json=asked)
    if answer.status != 200:
        raise SensorFault(f"Google answered with status {answer.status}{_reason(answer)}")
    try:
        calendar = json.loads(answer.content)["calendars"]["primary"]
        times = [Busy(_moment(each["start"]), _moment(each["end"])) for each in calendar.get("busy", ())]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise SensorFault("Google's answer cannot be read") from None
    return joined(each for each in times if is_meeting(each.start, each.end))


def _token(at: GoogleAddresses, client: GoogleClient, asked: dict[str, str]) -> dict[str, Any]:
    """What the token endpoint gives. Raises SensorFault."""
    form = asked | {"client_id": client.id, "client_secret": client.secret}
    answer = answered("POST", at.token, data=form)
    if answer.status != 200:
        raise SensorFault(f"Google refused{_reason(answer)}; {CONNECT}")
    try:
        told = json.loads(answer.content)
        if isinstance(told["access_token"], str):
            return told
    except (ValueError, LookupError, TypeError, RecursionError):
        pass  # said below
    raise SensorFault("Google's answer has no token in it")


_KNOWN = frozenset(("invalid_grant", "invalid_client", "unauthorized_client", "access_denied", "invalid_request"))


def _reason(answer: ServerAnswer) -> str:
    """Google's word for a refusal, where it is one of those that are known."""
    try:
        word = json.loads(answer.content)["error"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""
    return f" ({word})" if isinstance(word, str) and word in _KNOWN else ""


def _stamp(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _moment(text: str) -> datetime:
    """Raises ValueError, also for a time without a zone."""
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError("no zone")
    return at.astimezone(UTC)


class _Listener:
    """Listens on loopback for the one request by which the browser brings the code."""

    def __init__(self, state: str) -> None:
        self._state = state
        self._code: str | None = None
        self._refused = ""
        listener = self

        class Handler(http.server.BaseHTTPRequestHandler):
            timeout = 5.0  # of one connection; a browser may open some that stay silent

            def do_GET(self) -> None:
                known = listener._take(parse_qs(urlsplit(self.path).query))
                self.send_response(200 if known else 404)
                self.send_header("Content-Type", "text/html")
                self.end_headers()
                self.wfile.write(_ANSWERED if known else b"")

            def log_message(self, format: str, *args: Any) -> None:
                """Says nothing: the code stands in the request."""

        self._server = http.server.HTTPServer(("127.0.0.1", 0), Handler)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def wait(self, limit_s: float) -> str:
        """The code. Raises SensorFault when the person declines, or the time is over."""
        deadline = time.monotonic() + limit_s
        while self._code is None and not self._refused:
            left = deadline - time.monotonic()
            if left <= 0:
                raise SensorFault(f"nobody agreed within {limit_s / 60:g} minutes; nothing is connected")
            self._server.timeout = min(left, 1.0)
            self._server.handle_request()
        if self._code is None:
            raise SensorFault("Google says that you declined; nothing is connected")
        return self._code

    def _take(self, query: dict[str, list[str]]) -> bool:
        """Take what the browser brought, if it is the answer to our question and not another page's."""
        if not secrets.compare_digest(query.get("state", [""])[0].encode(), self._state.encode()):
            return False
        self._code = next(iter(query.get("code", [])), None)
        self._refused = "" if self._code else "declined"
        return True

    def __enter__(self) -> _Listener:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.server_close()
