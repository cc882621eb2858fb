"""The access token: asked for on every route, compared in constant time, and written nowhere but in its own file."""

from __future__ import annotations

import ast
import asyncio
import hmac
import inspect
import json
import logging
import re
import textwrap
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from starlette.routing import Route

from tests.gateway.callers import FORMATS, Caller, user
from tests.gateway.starting import gateway_on, settings, stub_engine
from tests.support.in_process import TOKENS, in_process
from tests.support.raw_http import answer, plays
from tests.support.rows import turn_row
from tests.support.servers import wait_until
from turnwise import access_tokens
from turnwise.gateway.app import make_app
from turnwise.gateway.turn.opening import TurnOpener
from turnwise.gateway.versions import ServingVersions
from turnwise.journal import Journal
from turnwise.judges import worker
from turnwise.messages import to_chat
from turnwise.tokens.rendering import load_renderer

TOKEN = TOKENS.agent
OPEN_ROUTES = ("/healthz", "/readyz")


@pytest.fixture
async def guarded(tmp_path: Path, qwen3_dir: Path) -> AsyncIterator[FastAPI]:
    """The application that wants TOKEN."""
    config = settings(tmp_path / "home", qwen3_dir)
    renderer = load_renderer(str(qwen3_dir))

    @asynccontextmanager
    async def nothing() -> AsyncGenerator[None, None]:
        yield

    async with in_process(config, renderer, ["a", "b"]) as inside:
        versions = ServingVersions(inside.journal, inside.answering.engine)
        opener = TurnOpener(config, inside.journal, renderer, versions, inside.answering.max_model_len)
        yield make_app(config, opener, inside.answering, TOKENS, nothing)


def asking(app: FastAPI) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1")


def calls_of(app: FastAPI) -> list[tuple[str, str]]:
    """Every method and path of the application's own table; what it mounts would have to be looked into."""
    assert all(isinstance(route, Route) for route in app.routes), "nothing is mounted, and there are no WebSockets"
    routes = [route for route in app.routes if isinstance(route, Route)]
    return [(method, re.sub(r"\{\w+\}", "x", route.path)) for route in routes for method in route.methods or ()]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer "},
        {"Authorization": f"Bearer {TOKEN[:-1]}"},
        {"Authorization": f"Bearer {TOKEN}x"},
        {"Authorization": f"Basic {TOKEN}"},
        {"x-api-key": TOKEN.upper()},
    ],
    ids=["none", "empty", "shorter", "longer", "another scheme", "another case"],
)
async def test_no_route_but_health_opens_without_the_token(guarded: FastAPI, headers: dict[str, str]) -> None:
    calls = calls_of(guarded)
    assert {"/v1/chat/completions", "/s/x/v1/responses", "/v1/messages", "/metrics", "/openapi.json"} <= {
        path for _, path in calls
    }
    async with asking(guarded) as client:
        for method, path in calls:
            status = (await client.request(method, path, headers=headers, json={})).status_code
            assert (status == 401) == (path not in OPEN_ROUTES), (method, path, status)
        assert (await client.get("/no/such/route", headers=headers)).status_code == 401


async def test_every_route_opens_with_the_admin_s_token(guarded: FastAPI) -> None:
    async with asking(guarded) as client:
        for method, path in calls_of(guarded):
            for headers in ({"Authorization": f"Bearer {TOKENS.admin}"}, {"x-api-key": TOKENS.admin}):
                status = (await client.request(method, path, headers=headers, json={})).status_code
                assert status not in (401, 403), path


async def test_each_token_is_compared_in_constant_time(guarded: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[set[bytes]] = []

    class Watched:
        @staticmethod
        def compare_digest(one: bytes, other: bytes) -> bool:
            compared.append({one, other})
            return hmac.compare_digest(one, other)

    monkeypatch.setattr(access_tokens, "hmac", Watched)
    ours = [TOKENS.agent, TOKENS.person, TOKENS.admin]
    wrong = ["", "x", TOKEN[:-1], *ours]
    async with asking(guarded) as client:
        for given in wrong:
            await client.get("/v1/models", headers={"x-api-key": given})
    assert compared == [{given.encode(), token.encode()} for given in wrong for token in ours], "all, each time"


def test_no_token_is_compared_in_any_other_way() -> None:
    """Only `is None`: neither `==` nor `in` nor `startswith` may shorten the comparison for a good beginning."""
    check = ast.parse(textwrap.dedent(inspect.getsource(access_tokens.Tokens.scope_of)))
    others = [
        ast.unparse(node)
        for node in ast.walk(check)
        if (isinstance(node, ast.Compare) and not all(isinstance(op, ast.Is) for op in node.ops))
        or isinstance(node, ast.Match)
        or (isinstance(node, ast.Attribute) and node.attr in ("startswith", "endswith", "__eq__"))
    ]
    assert others == []


def written(home: Path) -> dict[str, bytes]:
    """All files of a home but the tokens' own."""
    return {str(p): p.read_bytes() for p in home.rglob("*") if p.is_file() and p.name.partition(".")[0] != "token"}


def test_the_token_is_in_no_log_line_and_no_record(
    tmp_path: Path, qwen3_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    config = settings(tmp_path / "home", qwen3_dir)
    with stub_engine(qwen3_dir) as (stub, url), gateway_on(config, stub, url) as gateway:
        for name in FORMATS:
            for stream in (False, True):
                caller = Caller(gateway, name, stream)
                caller.ask([user(f"say: hello from {name}")])
                caller.ask([user("say: hello")], headers={"x-api-key": gateway.token})
                assert caller.send({"model": "turnwise"}).status_code == 400
                almost = {"Authorization": f"Bearer {gateway.token}x"}
                refused = caller.post([user("hello")], headers=almost)
                assert refused.status_code == 401 and gateway.token not in refused.text
                stub.refuse_with = 500
                assert caller.post([user("say: no")]).status_code >= 500
                stub.refuse_with = None
        token = gateway.token
    assert config.records_path.stat().st_size > 0
    assert len(token) > 20
    files = written(config.home)
    assert any(b"hello from" in data for data in files.values()), "what is looked through has what was said"
    assert [name for name, data in files.items() if token.encode() in data] == []
    assert "the stub refuses" in caplog.text
    assert token not in caplog.text


KEY = "sk-judge-0123456789abcdef"


@pytest.mark.parametrize("status", [400, 401, 429, 500])
async def test_a_judge_s_key_is_in_no_log_line_and_no_record(
    tmp_path: Path, qwen3_dir: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """Not even where the judge's endpoint repeats it."""
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("TURNWISE_JUDGE_API_KEY", KEY)
    monkeypatch.setattr("turnwise.judges.model.FIRST_BACKOFF_S", 0.0)
    async with plays(answer(status, {"error": {"message": f"the key {KEY} is not good here"}})) as endpoint:
        judge = {"judge__url": f"{endpoint.url}/v1", "judge__kind": "model", "judge__max_attempts": 1}
        config = settings(tmp_path / "home", qwen3_dir, **judge)
        with stub_engine(qwen3_dir) as (stub, url), gateway_on(config, stub, url) as gateway:

            def talk() -> str:
                caller = Caller(gateway, "chat", False)
                first = caller.ask([user("say: hello")])
                caller.ask([user("say: hello"), to_chat(first.answer), user("no, wrong")])
                return first.id

            turn_id = await asyncio.to_thread(talk)
            stop = asyncio.Event()
            judging = asyncio.create_task(worker.run(config, stop))
            await asyncio.to_thread(wait_until, lambda: gateway.turn(turn_id).exclusion)
            told = json.dumps(gateway.journal.status.figures())
            stop.set()
            await judging
    assert endpoint.received[-1].headers["authorization"] == f"Bearer {KEY}"
    journal = Journal.open(config)
    row = turn_row(journal, turn_id)
    journal.close()
    assert row is not None and "is not good here" in row.last_error
    assert KEY not in caplog.text + told + row.last_error
    assert [name for name, data in written(config.home).items() if KEY.encode() in data] == []
