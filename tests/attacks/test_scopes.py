"""An agent cannot reward itself: whose token each route takes, and what a person does with theirs."""

from __future__ import annotations

import stat
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.routing import Route
from typer.testing import CliRunner

from tests.conftest import Running
from tests.support.in_process import TOKENS
from turnwise.access_tokens import Scope, load_tokens, token_path
from turnwise.cli.main import app as command_line
from turnwise.config import Config, load_config
from turnwise.errors import ConfigError
from turnwise.gateway.app import make_app
from turnwise.gateway.scopes import ADMIN, AGENTS, ALL, OPEN, PERSON, ROUTES, refuse_unlisted, scopes_of

NOTHING: Any = None
FEEDBACK = "/v1/turns/t1/feedback"
HELD = {Scope.AGENT: TOKENS.agent, Scope.PERSON: TOKENS.person, Scope.ADMIN: TOKENS.admin}


def gateway_with(auth: bool = True) -> Any:
    """The application before anything serves: what is refused never comes to its routes."""
    return make_app(load_config(overrides={"server.auth": auth}), NOTHING, NOTHING, TOKENS, NOTHING)


async def status(app: Any, method: str, path: str, token: str | None) -> int:
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return (await client.request(method, path, headers=headers, json={})).status_code


def test_every_route_has_its_line_and_every_line_its_route() -> None:
    app = gateway_with()
    assert all(isinstance(route, Route) for route in app.routes), "nothing is mounted, and there are no WebSockets"
    assert {route.path for route in app.routes} == set(ROUTES)
    with pytest.raises(RuntimeError, match="/v1/new"):
        refuse_unlisted(["/healthz", "/v1/new"])


def test_the_table_as_it_is_meant() -> None:
    by_scope = {scopes: sorted(p for p in ROUTES if ROUTES[p] == scopes and not p.startswith("/s/")) for scopes in
                (OPEN, PERSON, ADMIN, ALL)}  # fmt: skip
    assert by_scope == {
        OPEN: ["/healthz", "/readyz"],
        PERSON: [
            "/v1/sessions/{session_id}/outcome",
            "/v1/sessions/{session_id}/rollout",
            "/v1/status",
            "/v1/turns/{turn_id}/feedback",
        ],
        ADMIN: ["/metrics"],
        ALL: ["/v1/sessions/{session_id}/close"],
    }
    assert all(scopes == AGENTS for path, scopes in ROUTES.items() if path.startswith("/s/"))
    assert scopes_of("/s/x/v1/messages") == AGENTS and scopes_of(FEEDBACK) == PERSON
    assert scopes_of("/v1/turns/t1/feedback/") is None and scopes_of("//v1/turns/t1/feedback") is None


@pytest.mark.parametrize("scope", list(Scope))
@pytest.mark.parametrize("auth", [True, False])
async def test_each_token_opens_what_the_table_says_and_nothing_else(scope: Scope, auth: bool) -> None:
    app = gateway_with(auth)
    for route, suffix in product(app.routes, ("", "%0A", "/", "%2F", "//", "%00", "?x=1", "%0D%0A")):
        path = route.path.replace("{session}", "s").replace("{name}", "n").replace("{response_id}", "r")
        path = path.replace("{session_id}", "s").replace("{turn_id}", "t") + suffix
        for method in route.methods:
            got = await status(app, method, path, HELD[scope])
            takes = ROUTES[route.path]
            opens = not takes or scope in takes or (not auth and Scope.AGENT in takes)
            if suffix in ("", "?x=1"):
                assert (got not in (401, 403)) == opens, (method, path, got)
            elif not opens:  # another spelling is no way in: refused, not there, or pointed to the right one
                assert got in (401, 403, 404, 405, 307), (method, path, got)


@pytest.mark.parametrize("path", ["/metrics%0A", "/v1/status%0A", f"{FEEDBACK}%0A"])
async def test_a_line_break_behind_a_path_is_no_way_in(path: str) -> None:
    """The router takes it for the path itself, so the table must too."""
    method = "POST" if "feedback" in path else "GET"
    assert await status(gateway_with(), method, path, TOKENS.agent) == 403
    assert await status(gateway_with(auth=False), method, path, None) == 401


async def test_without_authentication_feedback_and_figures_still_take_their_token() -> None:
    app = gateway_with(auth=False)
    for method, path in (("POST", FEEDBACK), ("GET", "/v1/status"), ("GET", "/metrics")):
        assert await status(app, method, path, None) == 401
        assert await status(app, method, path, "wrong") == 401
    assert await status(app, "GET", "/nowhere", None) == 404


def test_an_agent_that_rewards_itself_is_told_who_may(gateway: Running) -> None:
    answer = gateway.client().chat.completions.with_raw_response.create(
        model="turnwise", messages=[{"role": "user", "content": "say: hello"}]
    )
    url = f"{gateway.url}/v1/turns/{answer.headers['x-turnwise-turn-id']}/feedback"
    refused = httpx.post(url, headers=gateway.auth, json={"score": 1})
    assert refused.status_code == 403
    said = refused.json()["error"]["message"]
    assert "`turnwise token person`" in said and "`turnwise feedback`" in said
    assert httpx.post(url, headers=gateway.person, json={"score": 1}).json()["result"] == "taken as the turn's verdict"
    swapped = httpx.get(f"{gateway.url}/v1/models", headers=gateway.person)
    assert swapped.status_code == 403 and "`turnwise token agent`" in swapped.json()["error"]["message"]
    scraped = httpx.get(f"{gateway.url}/metrics", headers=gateway.admin)
    assert scraped.status_code == 200 and "turnwise_requests_total" in scraped.text


def test_each_token_has_a_file_of_its_own_and_no_two_are_the_same(config: Config) -> None:
    made = load_tokens(config)
    assert load_tokens(config) == made
    files = [token_path(config, scope) for scope in Scope]
    assert [file.name for file in files] == ["token", "token.person", "token.admin"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert {file.read_text().strip() for file in files} == {made.agent, made.person, made.admin}
    assert made.admin not in repr(made)
    files[2].write_text(made.agent)
    with pytest.raises(ConfigError, match="same token"):
        load_tokens(config)


# -- the person's commands ------------------------------------------------------------------------------------------


def command(gateway_home: Path, *words: str) -> tuple[int, str]:
    result = CliRunner().invoke(command_line, [*words, "--home", str(gateway_home)])
    return result.exit_code, result.output + (str(result.exception) if result.exception else "")


def test_a_person_gives_feedback_with_one_command(gateway: Running) -> None:
    home = gateway.config.home
    code, said = command(home, "feedback", "--last", "--score", "1")
    assert code != 0 and "no answer" in said
    ids = []
    for session in ("s1", "s2"):
        body = {"model": "turnwise", "messages": [{"role": "user", "content": "say: hello"}]}
        headers = gateway.auth | {"X-Session-Id": session}
        made = httpx.post(f"{gateway.url}/v1/chat/completions", headers=headers, json=body)
        ids.append(made.headers["x-turnwise-turn-id"])
        httpx.post(f"{gateway.url}/v1/chat/completions", headers=headers | {"X-Turn-Type": "side"}, json=body)
    code, said = command(home, "feedback", "--last", "--score", "-1", "--text", "Say more.")
    assert code == 0 and ids[1] in said, said
    code, said = command(home, "feedback", "--session", "s1", "--score", "1")
    assert code == 0 and ids[0] in said, said
    shown = [gateway.journal.sessions.show(session) or {} for session in ("s1", "s2")]
    verdicts = [v for session in shown for t in session["turns"] for v in t["verdicts"]]
    assert [(v["judge"], v["score"], v["hint"]) for v in verdicts] == [("person", 1, None), ("person", -1, "Say more.")]
    code, said = command(home, "feedback", "turn-x", "--score", "1")
    assert code != 0 and "no turn" in said
    for wrong in (["--score", "1"], ["--last"], ["turn-x", "--last", "--score", "1"]):
        assert command(home, "feedback", *wrong)[0] != 0


def test_without_a_server_feedback_says_so_and_sends_the_token_nowhere(config: Config, journal: Any) -> None:
    journal.status.say("gateway", {"pid": 1, "url": "http://127.0.0.1:9"})  # of one that has ended
    load_tokens(config)
    (config.home / "gateway.lock").touch()
    code, said = command(config.home, "feedback", "turn-x", "--score", "1")
    assert code != 0 and "no server runs for the home" in said


def test_a_token_is_printed_for_scripts(config: Config) -> None:
    made = load_tokens(config)
    for words, token in ((["token"], made.agent), (["token", "person"], made.person), (["token", "admin"], made.admin)):
        assert command(config.home, *words) == (0, f"{token}\n")
