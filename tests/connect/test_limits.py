"""How much a client is told to fit into the model: what the server or its engine says, and never a guess."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route
from tokenizers import Tokenizer

from tests.conftest import GatewayThread
from tests.support.servers import running
from turnwise.access_tokens import load_or_make_token
from turnwise.bench.stub_engine import StubEngine
from turnwise.config import Config, load_config
from turnwise.connect.command import connect_client
from turnwise.errors import ConfigError

SILENT = "http://127.0.0.1:9"
"""Nothing listens there."""


def settings(tmp_path: Path, **more: Any) -> Config:
    given = {"home": tmp_path / "home", "server.port": 9, "train.enabled": False}
    return load_config(overrides=given | {key.replace("__", "."): value for key, value in more.items()})


def upstream(tmp_path: Path, **more: Any) -> Config:
    return settings(tmp_path, engine__kind="upstream", engine__url=SILENT, **more)


def connected(config: Config, client: str, file: Path, url: str | None = None) -> str:
    connect_client(config, client, file, url, None, lambda _: True)
    return file.read_text()


def limits(client: str, text: str) -> tuple[Any, Any]:
    """The context and the longest answer that a client's file has."""
    if client == "codex":
        return tomllib.loads(text).get("model_context_window"), None
    found = json.loads(text)
    if client == "openclaw":
        [model] = found["models"]["providers"]["turnwise"]["models"]
        return model.get("contextWindow"), model["maxTokens"]
    if client == "opencode":
        limit = found["provider"]["turnwise"]["models"]["turnwise"]["limit"]
        return limit["context"], limit["output"]
    if client == "qwen-code":
        generation = found["modelProviders"]["openai"][0]["generationConfig"]
        return generation.get("contextWindowSize"), generation["samplingParams"]["max_tokens"]
    environment = found["env"]
    return environment.get("CLAUDE_CODE_MAX_CONTEXT_TOKENS"), environment["CLAUDE_CODE_MAX_OUTPUT_TOKENS"]


UNKNOWN = {
    "openclaw": (None, 4096),
    "opencode": (0, 4096),
    "codex": (None, None),
    "claude-code": (None, "4096"),
    "qwen-code": (None, 4096),
}


@pytest.mark.parametrize("serves", [True, False])
@pytest.mark.parametrize("client", UNKNOWN)
def test_nobody_knows_the_limits_of_an_upstream(tmp_path: Path, client: str, serves: bool) -> None:
    config = upstream(tmp_path)
    thread = GatewayThread(config, SILENT)
    if serves:
        thread.start(config)
    try:
        text = connected(config, client, tmp_path / "file", thread.url if serves else None)
    finally:
        if serves:
            thread.stop()
    assert limits(client, text) == UNKNOWN[client]


@pytest.mark.parametrize(("client", "gone"), [("codex", None), ("claude-code", "0")])
def test_the_context_of_an_engine_before_does_not_stay_for_an_upstream(tmp_path: Path, client: str, gone: Any) -> None:
    file = tmp_path / "file"
    assert str(limits(client, connected(settings(tmp_path), client, file))[0]) == "4096"
    assert limits(client, connected(upstream(tmp_path), client, file))[0] == gone


@pytest.mark.parametrize("serves", [True, False])
def test_a_context_that_is_set_for_an_upstream_counts(tmp_path: Path, serves: bool) -> None:
    config = upstream(tmp_path, engine__max_model_len=200_000)
    thread = GatewayThread(config, SILENT)
    if serves:
        thread.start(config)
    try:
        text = connected(config, "openclaw", tmp_path / "file", thread.url if serves else None)
        if serves:
            token = (config.home / "token").read_text().strip()
            listed = httpx.get(f"{thread.url}/v1/models", headers={"Authorization": f"Bearer {token}"}).json()
            assert {model["max_model_len"] for model in listed["data"]} == {200_000}
    finally:
        if serves:
            thread.stop()
    assert limits("openclaw", text) == (200_000, 4096)


def test_an_engine_elsewhere_is_asked_itself_while_the_server_is_down(tmp_path: Path, tokenizer: Tokenizer) -> None:
    small, large = (StubEngine(tokenizer, lambda _: "", max_model_len=n) for n in (16_384, 32_768))
    with running(small.app()) as one, running(large.app()) as other:
        single = settings(tmp_path, engine__url=other)
        assert limits("openclaw", connected(single, "openclaw", tmp_path / "single")) == (32_768, 8192)
        both = settings(tmp_path, engine__urls=(one, other))
        assert limits("openclaw", connected(both, "openclaw", tmp_path / "both")) == (16_384, 4096)


@pytest.mark.parametrize("dry", [True, False])
def test_without_server_and_engine_nothing_is_written(tmp_path: Path, dry: bool) -> None:
    config = settings(tmp_path, engine__url="http://127.0.0.1:10")
    ask = None if dry else lambda _: True
    with pytest.raises(ConfigError, match=r"nothing answers there.*start `turnwise serve` first"):
        connect_client(config, "openclaw", tmp_path / "file", None, None, ask)
    assert not (tmp_path / "file").exists()


# -- a server elsewhere ---------------------------------------------------------------------------------------------


def refusing(status: int) -> Starlette:
    """A server that takes no token."""
    return Starlette(routes=[Route("/v1/models", lambda _: JSONResponse({"error": "no"}, status))])


def saying(model: dict[str, Any]) -> Starlette:
    """A server that takes any token and lists this model."""
    return Starlette(routes=[Route("/v1/models", lambda _: JSONResponse({"data": [model]}))])


def refused(config: Config, file: Path, url: str | None, dry: bool = False) -> str:
    """What connecting says, which must fail, write no file and make no token."""
    tokens_before = config.token_path.read_bytes() if config.token_path.exists() else None
    with pytest.raises(ConfigError) as e:
        connect_client(config, "openclaw", file, url, None, None if dry else lambda _: True)
    assert not file.exists()
    assert (config.token_path.read_bytes() if config.token_path.exists() else None) == tokens_before
    return str(e.value)


@pytest.mark.parametrize("dry", [True, False])
@pytest.mark.parametrize("status", [401, 403])
def test_a_server_elsewhere_that_refuses_is_said_aloud(tmp_path: Path, status: int, dry: bool) -> None:
    config = settings(tmp_path)
    with running(refusing(status)) as url:
        without = refused(config, tmp_path / "file", url, dry)
        load_or_make_token(config.token_path)
        with_token = refused(config, tmp_path / "file", url, dry)
    assert f"{url} asks for a token ({status})" in without
    assert f"{url} asks for a token ({status})" in with_token, "this home's is not sent there"
    assert "--token" in without


def test_a_length_by_hand_does_not_hide_a_refusal(tmp_path: Path) -> None:
    with running(refusing(401)) as url:
        assert "401" in refused(settings(tmp_path, engine__max_model_len=8192), tmp_path / "file", url)


def test_the_server_of_another_home_at_our_address_is_not_ours(tmp_path: Path) -> None:
    with running(refusing(401)) as url:
        config = settings(tmp_path, server__port=int(url.rsplit(":", 1)[1]))
        assert "another home" in refused(config, tmp_path / "file", None)
        assert "another home" in refused(config, tmp_path / "file", url)


@pytest.mark.parametrize("kind", ["local", "upstream", "vllm"])
def test_a_silent_server_elsewhere_has_no_context_of_ours(tmp_path: Path, tokenizer: Tokenizer, kind: str) -> None:
    engine = StubEngine(tokenizer, lambda _: "", max_model_len=16_384)
    with running(engine.app()) as here:
        more = {} if kind == "local" else {"engine__kind": kind, "engine__url": here}
        said = refused(settings(tmp_path, **more), tmp_path / "file", "http://127.0.0.1:10")
    assert "nothing answers there" in said
    assert "engine.max_model_len" in said


def test_a_silent_server_elsewhere_takes_a_length_by_hand(tmp_path: Path) -> None:
    config = settings(tmp_path, engine__max_model_len=65_536)
    text = connected(config, "openclaw", tmp_path / "file", "http://127.0.0.1:10")
    assert limits("openclaw", text) == (65_536, 16_384)
    assert not config.token_path.exists()


def test_a_server_elsewhere_without_tokens_says_its_own(tmp_path: Path) -> None:
    config = settings(tmp_path)
    with running(saying({"id": "turnwise", "max_model_len": 32_768})) as url:
        text = connected(config, "openclaw", tmp_path / "file", url)
    assert limits("openclaw", text) == (32_768, 8192)
    assert not config.token_path.exists()


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/v1/", "http://localhost:9", "http://[::1]:9"])
def test_our_own_address_may_be_written_out(tmp_path: Path, url: str) -> None:
    config = settings(tmp_path)
    assert limits("openclaw", connected(config, "openclaw", tmp_path / "file", url)) == (4096, 1024)
    assert config.token_path.read_text().strip() in (tmp_path / "file").read_text()


@pytest.mark.parametrize("url", ["http://a:b", "http://", "ftp://a"])
def test_an_address_that_is_none_is_said(tmp_path: Path, url: str) -> None:
    assert "--url" in refused(settings(tmp_path), tmp_path / "file", url)
