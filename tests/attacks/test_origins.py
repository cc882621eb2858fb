"""Web pages and names of others: a browser on this machine reaches our port for whoever wrote the page."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tests.conftest import Running
from tests.support.in_process import TOKENS
from tests.support.servers import running
from turnwise.access_tokens import load_tokens
from turnwise.config import Config, load_config
from turnwise.connect.endpoint import find_endpoint
from turnwise.errors import ConfigError
from turnwise.gateway.app import make_app
from turnwise.gateway.scopes import ROUTES

NOTHING: Any = None
ADMIN = {"Authorization": f"Bearer {TOKENS.admin}"}
PAGE = "https://chat.example.com"
APPS: dict[str, Any] = {}
Headers = dict[str, str] | Sequence[tuple[str, str]]


async def ask(method: str = "GET", path: str = "/healthz", headers: Headers = (), **server: object) -> httpx.Response:
    """One request to the application with these settings of its server; the real thing, but for the socket."""
    key = repr(server)
    if key not in APPS:
        config = load_config(overrides={f"server.{name}": value for name, value in server.items()})
        APPS[key] = make_app(config, NOTHING, NOTHING, TOKENS, NOTHING)
    app = APPS[key]
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        return await client.request(
            method, path, headers=list(headers.items()) if isinstance(headers, dict) else headers
        )


@pytest.mark.parametrize(
    "host",
    [
        "evil.example.com",
        "127.0.0.1.evil.example.com",
        "localhost.evil.com",
        "evil.com:8377",
        "",
        "127.0.0.1:x",
        "a\tb",
    ],
)
async def test_a_name_made_to_point_here_is_refused_on_every_route(host: str) -> None:
    for path in [*ROUTES, "/nowhere"]:
        response = await ask("GET", path, ADMIN | {"Host": host})
        assert response.status_code == 421, path
        assert "server.allowed_hosts" in response.text


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost:8377", "LOCALHOST", "[::1]:9", "[::1]", "192.168.1.5:80", "localhost.", "box:1"]
)
async def test_loopback_addresses_and_configured_names_are_ours(host: str) -> None:
    assert (await ask(headers={"Host": host}, allowed_hosts=["box"])).status_code == 200


async def test_exactly_one_host() -> None:
    assert (await ask(headers=[("Host", "localhost"), ("Host", "localhost")])).status_code == 400


async def test_a_page_may_ask_only_where_it_is_named() -> None:
    for path in [*ROUTES, "/nowhere"]:
        for origin in (PAGE, "null", "http://127.0.0.1:3000", "https://chat.example.com.evil.com"):
            refused = await ask("GET", path, ADMIN | {"Origin": origin}, cors_origins=["https://other.example.com"])
            assert refused.status_code == 403, path
            assert "access-control-allow-origin" not in refused.headers
    allowed = await ask(headers={"Origin": PAGE, "Sec-Fetch-Site": "cross-site"}, cors_origins=[PAGE])
    assert (allowed.status_code, allowed.headers["access-control-allow-origin"]) == (200, PAGE)
    told = await ask(path="/v1/models", headers={"Origin": PAGE}, cors_origins=[PAGE])
    assert (told.status_code, told.headers["access-control-allow-origin"]) == (401, PAGE), "the page can read why"


async def test_the_question_before_a_page_s_request_is_answered() -> None:
    asked = {"Origin": PAGE, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    path = "/v1/chat/completions"
    answered = await ask("OPTIONS", path, asked, cors_origins=[PAGE])
    assert answered.status_code == 200
    assert answered.headers["access-control-allow-origin"] == PAGE
    assert "authorization" in answered.headers["access-control-allow-headers"].lower()
    assert (await ask("OPTIONS", path, asked)).status_code == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_a_page_that_hides_its_origin_is_refused(site: str) -> None:
    assert (await ask(headers={"Sec-Fetch-Site": site})).status_code == 403
    assert (await ask(headers={"Sec-Fetch-Site": "none"})).status_code == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
async def test_a_form_is_refused_where_no_token_is_asked_for(kind: str) -> None:
    posts = [p for p in ROUTES if p.endswith(("completions", "responses", "messages", "close", "feedback", "tokens"))]
    for path in posts:
        refused = await ask("POST", path, {"Content-Type": kind}, auth=False)
        assert refused.status_code == 415 and "application/json" in refused.text, path
    assert (await ask("POST", "/nowhere", {"Content-Type": kind})).status_code == 401, "a form carries no token"


@pytest.mark.parametrize("kind", [{}, {"Content-Type": "application/json"}])
async def test_clients_that_name_json_or_nothing_are_not_refused(kind: dict[str, str]) -> None:
    assert (await ask("POST", "/nowhere", kind, auth=False)).status_code == 404


def test_curl_s_own_content_type_goes_with_a_token(gateway: Running) -> None:
    body = '{"model": "turnwise", "messages": [{"role": "user", "content": "say: hello"}]}'
    headers = gateway.auth | {"Content-Type": "application/x-www-form-urlencoded"}
    assert httpx.post(f"{gateway.url}/v1/chat/completions", headers=headers, content=body).status_code == 200


@pytest.mark.parametrize("key", ["cors_origins", "allowed_hosts"])
@pytest.mark.parametrize("value", ["*", "https://a/b", "a b", "//x"])
def test_a_setting_that_would_let_all_in_is_refused(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"server.{key}"):
        load_config(overrides={f"server.{key}": value})


# -- this home's token stays at home --------------------------------------------------------------------------------


def listening() -> tuple[Starlette, list[str | None]]:
    """A server of somebody else, which says yes to all and keeps what it is sent."""
    heard: list[str | None] = []

    async def models(request: Request) -> JSONResponse:
        heard.append(request.headers.get("authorization"))
        return JSONResponse({"data": [{"id": "turnwise", "max_model_len": 4096}]})

    return Starlette(routes=[Route("/v1/models", models)]), heard


def test_a_server_elsewhere_never_hears_this_home_s_token(config: Config) -> None:
    own = load_tokens(config)
    app, heard = listening()
    with running(app) as url:
        assert find_endpoint(config, url, None, make_token=True).token == "none"
        assert find_endpoint(config, url, None, make_token=True, given="theirs-0123456789").token == "theirs-0123456789"
    assert heard == ["Bearer none", "Bearer theirs-0123456789"]
    assert own.agent not in str(heard)


def test_a_stranger_at_our_own_port_does_not_hear_it_either(config: Config) -> None:
    load_tokens(config)
    app, heard = listening()
    with running(app) as url:
        ours = load_config(overrides={"home": config.home, "server.port": int(url.rsplit(":", 1)[1])})
        find_endpoint(ours, None, None, make_token=True)
    assert heard == ["Bearer none"], "our server does not run"


def test_our_own_gateway_is_asked_with_it_wherever_it_listens(gateway: Running) -> None:
    assert find_endpoint(gateway.config, gateway.url, None, make_token=False).token == gateway.token


# -- serve ----------------------------------------------------------------------------------------------------------

SERVE = """
import sys
from turnwise.loops import supervisor

async def run(self, on_ready, stop):
    await on_ready(supervisor.Address("http://127.0.0.1:1", "tw-secret-token"))

supervisor.Supervisor.run = run
from turnwise.cli.main import main
sys.argv = ["turnwise", "serve", "--home", sys.argv[1]]
main()
"""


def test_a_service_log_does_not_hold_the_token(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", SERVE, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert "tw-secret-token" not in done.stdout + done.stderr
    assert "turnwise token" in done.stdout and "http://127.0.0.1:1" in done.stdout
