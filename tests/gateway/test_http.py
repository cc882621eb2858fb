"""The gateway as HTTP clients meet it: methods, single models, what is not offered, bodies that never end."""

from __future__ import annotations

import logging
import socket
from urllib.parse import urlsplit

import anthropic
import httpx
import openai
import pytest

from tests.conftest import Running
from tests.gateway.callers import FORMATS
from tests.gateway.conftest import Agents
from tests.support.servers import wait_until
from tests.support.versions import publish


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/chat/completions", "POST"),
        ("GET", "/v1/messages", "POST"),
        ("PUT", "/v1/responses", "POST"),
        ("DELETE", "/v1/models/turnwise", "GET"),
        ("POST", "/v1/models", "GET"),
    ],
)
def test_a_wrong_method_is_told_the_right_one(qwen: Agents, method: str, path: str, allowed: str) -> None:
    response = httpx.request(method, qwen.url + path, headers=qwen.auth)
    assert (response.status_code, response.headers["Allow"]) == (405, allowed)
    assert f"use {allowed}" in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/chat/completions", "/v1/chat/completions"),
        ("/v1/v1/chat/completions", "/v1/chat/completions"),
        ("/responses", "/v1/responses"),
        ("/v1/v1/messages", "/v1/messages"),
        ("/messages/count_tokens", "/v1/messages/count_tokens"),
        ("/s/mine/chat/completions", "/s/mine/v1/chat/completions"),
        ("/v1/s/mine/v1/messages", None),
        ("/v1/elsewhere", None),
        ("/v1/v1", None),
    ],
)
def test_a_base_url_with_a_wrong_v1_is_told_the_right_path(qwen: Agents, path: str, meant: str | None) -> None:
    response = httpx.post(qwen.url + path, headers=qwen.auth, json={})
    assert response.status_code == 404
    message = response.json()["error"]["message"]
    assert message.startswith(f"POST {path} does not exist here")
    assert (f"it is {meant}: the base URL" in message) is (meant is not None)
    anthropics = response.json().get("type") == "error"
    assert anthropics is ("/messages" in path)
    assert httpx.post(qwen.url + path, json={}).status_code == 401, "nothing is told to who has no token"


def test_the_makers_own_clients_are_told_too(qwen: Agents) -> None:
    openais = openai.OpenAI(base_url=qwen.url, api_key=qwen.token, max_retries=0)
    with pytest.raises(openai.NotFoundError, match="it is /v1/chat/completions"):
        openais.chat.completions.create(model="turnwise", messages=[{"role": "user", "content": "hi"}])
    anthropics = anthropic.Anthropic(base_url=f"{qwen.url}/v1", api_key=qwen.token, max_retries=0)
    with pytest.raises(anthropic.NotFoundError, match="it is /v1/messages"):
        anthropics.messages.create(model="turnwise", max_tokens=9, messages=[{"role": "user", "content": "hi"}])


def test_health_may_be_asked_for_without_its_body(qwen: Agents) -> None:
    for path in ("/healthz", "/readyz"):
        response = httpx.head(qwen.url + path)
        assert (response.status_code, response.content) == (200, b"")


def test_a_single_model_in_both_sdks(qwen: Agents) -> None:
    number = publish(qwen.journal)
    for name in ("turnwise", "turnwise@base", f"turnwise@v{number}"):
        one = qwen.openai.models.retrieve(name)
        assert one in list(qwen.openai.models.list())
        other = qwen.anthropic.models.retrieve(name)
        assert other in list(qwen.anthropic.models.list())
        assert one.id == other.id == name
        in_session = httpx.get(f"{qwen.url}/s/abc/v1/models/{name}", headers=qwen.auth)
        assert in_session.json()["id"] == name
    for name in ("gpt-5", "turnwise@v999"):
        with pytest.raises(openai.NotFoundError) as refused:
            qwen.openai.models.retrieve(name)
        assert refused.value.code == "model_not_found"
        with pytest.raises(anthropic.NotFoundError):
            qwen.anthropic.models.retrieve(name)


def test_what_is_not_offered_says_what_is(qwen: Agents) -> None:
    answer = qwen.openai.responses.create(model="turnwise", input="say: hello")
    for ask in (qwen.openai.responses.retrieve, qwen.openai.responses.delete):
        with pytest.raises(openai.NotFoundError, match="previous_response_id"):
            ask(answer.id)


@pytest.mark.parametrize("path", [path for path, _, _ in FORMATS.values()])
def test_a_client_that_hangs_up_while_it_sends_is_no_failure_of_ours(
    gateway: Running, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    where = urlsplit(gateway.url)
    assert where.hostname and where.port
    with caplog.at_level(logging.WARNING), socket.create_connection((where.hostname, where.port)) as sock:
        lines = [f"POST {path} HTTP/1.1", f"Host: {where.netloc}", "Content-Length: 1000"]
        lines += [f"{name}: {value}" for name, value in gateway.auth.items()]
        sock.sendall("\r\n".join([*lines, "", '{"model": ']).encode())
        sock.shutdown(socket.SHUT_RDWR)
    label = f'turnwise_requests_total{{route="{path}",status='

    def counted() -> list[str]:
        text = httpx.get(f"{gateway.url}/metrics", headers=gateway.admin).text
        return [line for line in text.splitlines() if line.startswith(label)]

    assert wait_until(counted) == [f'{label}"499"}} 1.0']
    assert httpx.get(f"{gateway.url}/v1/status", headers=gateway.admin).json()["failed_requests"] == 0
    assert not [record for record in caplog.records if record.exc_info], "no traceback"


@pytest.mark.parametrize(
    ("path", "header", "named"), [("/s/a b", {}, "session"), ("", {"X-Session-Id": "a b"}, "X-Session-Id")]
)
def test_a_bad_session_id_is_told_where_it_stands(qwen: Agents, path: str, header: dict[str, str], named: str) -> None:
    body = {"model": "turnwise", "messages": [{"role": "user", "content": "hi"}]}
    response = httpx.post(f"{qwen.url}{path}/v1/chat/completions", headers=qwen.auth | header, json=body)
    assert (response.status_code, response.json()["error"]["param"]) == (400, named)
    assert named in response.json()["error"]["message"]
