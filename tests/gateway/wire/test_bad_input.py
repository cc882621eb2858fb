"""Bad requests: each gets a clear error in OpenAI's shape, and the server goes on as if nothing had happened."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.conftest import Running
from turnwise.types import TurnState

HI = [{"role": "user", "content": "hi"}]
BEGUN = [{"role": "assistant", "content": "x"}]
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}


def post(gateway: Running, body: Any, **kwargs: Any) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = kwargs.pop("headers", gateway.auth) | {"Content-Type": "application/json"}
    return httpx.post(f"{gateway.url}/v1/chat/completions", headers=headers, content=content, timeout=30, **kwargs)


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        (b'{"model": "turnwise", ', None, "not valid JSON"),
        (b"\xff\xfe", None, "not valid JSON"),
        (b"[" * 100_000, None, "not valid JSON"),
        (b"[]", None, "JSON object"),
        ({"messages": HI}, "model", "required"),
        ({"model": "turnwise"}, "messages", "required"),
        ({"model": "turnwise", "messages": []}, "messages", "empty"),
        ({"model": "turnwise", "messages": [{"role": "assistant", "content": "x"}]}, "messages", "last message"),
        ({"model": "turnwise", "messages": [*HI, *BEGUN, *BEGUN]}, "messages", "last message"),
        ({"model": "turnwise", "messages": [*HI, BEGUN[0] | {"tool_calls": [CALL]}]}, "messages", "add their results"),
        ({"model": "turnwise", "messages": HI, "ignore_eos": True}, "ignore_eos", "not supported"),
        ({"model": "turnwise", "messages": [{"role": "robot", "content": "x"}]}, "messages.0", "role"),
        ({"model": "turnwise", "messages": [{"role": "user"}]}, "messages.0", "content is missing"),
        ({"model": "turnwise", "messages": [{"role": "user", "content": 3}]}, "messages.0", "content must be"),
        ({"model": "turnwise", "messages": [{"role": "tool", "content": "x"}]}, "messages.0", "tool_call_id"),
        (
            {"model": "turnwise", "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "messages.0.content",
            "text model",
        ),
        ({"model": "turnwise", "messages": HI, "max_tokens": 0}, "max_tokens", "greater than or equal to 1"),
        ({"model": "turnwise", "messages": HI, "max_completion_tokens": -5}, "max_completion_tokens", "greater"),
        ({"model": "turnwise", "messages": HI, "temperature": -1}, "temperature", "greater"),
        ({"model": "turnwise", "messages": HI, "temperature": float("nan")}, None, "not valid JSON"),
        ({"model": "turnwise", "messages": HI, "top_p": -0.1}, "top_p", "greater"),
        ({"model": "turnwise", "messages": HI, "n": 2}, "n", "not supported"),
        ({"model": "turnwise", "messages": HI, "stop": [""]}, "stop", "non-empty"),
        ({"model": "turnwise", "messages": HI, "frequency_penalty": 3}, "frequency_penalty", "less than or equal to 2"),
        ({"model": "turnwise", "messages": HI, "repetition_penalty": 1e-40}, "repetition_penalty", "equal to 0.01"),
        ({"model": "turnwise", "messages": HI, "min_p": 2}, "min_p", "less than or equal to 1"),
        ({"model": "turnwise", "messages": HI, "made_up": 1}, "made_up", "unknown field"),
        (
            {"model": "turnwise", "messages": HI, "response_format": {"type": "json_object"}},
            "response_format",
            "prompt",
        ),
        ({"model": "turnwise", "messages": HI, "tool_choice": "required"}, "tool_choice", "auto"),
        ({"model": "turnwise", "messages": HI, "stream_options": {}}, "stream_options", "stream: true"),
        (b'{"model": "turnwise", "messages": [{"role": "user", "content": "\\ud800"}]}', None, "surrogate"),
    ],
)
def test_refused_by_name(gateway: Running, body: Any, param: str | None, words: str) -> None:
    response = post(gateway, body)
    error = response.json()["error"]
    assert response.status_code == 400, response.text
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param
    assert words in error["message"]
    assert gateway.stub.sampled == []


@pytest.mark.parametrize("model", ["gpt-4", "turnwise@v7", "turnwise@", "turnwise@v-1"])
def test_unknown_models_are_404(gateway: Running, model: str) -> None:
    response = post(gateway, {"model": model, "messages": HI})
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "model_not_found"


def test_a_20_mb_body_is_refused_before_it_is_read(gateway: Running) -> None:
    big = {"model": "turnwise", "messages": [{"role": "user", "content": "x" * 20_000_000}]}
    try:
        response = post(gateway, big)
        assert response.status_code == 413
        assert "server.max_body_mb" in response.json()["error"]["message"]
    except httpx.TransportError:
        pass  # the server hung up while the body was still being sent, which is allowed
    assert post(gateway, {"model": "turnwise", "messages": HI}).status_code == 200


def test_a_prompt_longer_than_the_context(gateway: Running) -> None:
    first = post(gateway, {"model": "turnwise", "messages": HI})
    answer = first.json()["choices"][0]["message"]
    response = post(
        gateway, {"model": "turnwise", "messages": [*HI, answer, {"role": "user", "content": "word " * 6000}]}
    )
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (400, "context_length_exceeded")
    assert "4096" in error["message"]
    before = gateway.turn(first.headers["x-turnwise-turn-id"])
    assert before.state is TurnState.JUDGING, "the reaction to the earlier turn is not lost with the refused request"


@pytest.mark.parametrize(
    "header", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "tw-x"}, {"x-api-key": "no"}]
)
@pytest.mark.parametrize("route", ["/v1/models", "/v1/status", "/metrics", "/v1/sessions/x/close", "/nothing"])
def test_every_route_but_health_wants_the_token(gateway: Running, header: dict[str, str], route: str) -> None:
    response = httpx.request("POST" if "close" in route else "GET", gateway.url + route, headers=header)
    assert response.status_code == 401
    assert "token" in response.json()["error"]["message"]


def test_open_routes_and_unknown_ones(gateway: Running) -> None:
    assert httpx.get(f"{gateway.url}/healthz").json() == {"status": "ok"}
    assert httpx.get(f"{gateway.url}/readyz").status_code == 200
    unknown = httpx.get(f"{gateway.url}/v1/nothing", headers=gateway.auth)
    assert unknown.status_code == 404
    assert "does not exist" in unknown.json()["error"]["message"]
    assert httpx.get(f"{gateway.url}/v1/chat/completions", headers=gateway.auth).status_code == 405


@pytest.mark.parametrize(
    "headers",
    [{"X-Session-Id": "a b"}, {"X-Session-Id": "x" * 300}, {"X-Turn-Type": "odd"}, {"X-Session-Done": "maybe"}],
)
def test_headers_that_cannot_be_honoured(gateway: Running, headers: dict[str, str]) -> None:
    response = post(gateway, {"model": "turnwise", "messages": HI}, headers=gateway.auth | headers)
    assert response.status_code == 400


def test_known_fields_without_effect_are_kept_in_the_record(gateway: Running) -> None:
    kept = {"user": "u1", "metadata": {"k": "v"}, "store": True, "verbosity": "low"}
    response = post(gateway, {"model": "turnwise", "messages": HI, "temperature": 0.5} | kept)
    assert response.status_code == 200
    row = gateway.journal.lookups.turn(response.headers["x-turnwise-turn-id"])
    assert row is not None
    assert row.params == kept | {"temperature": 0.5}


def test_an_engine_that_sends_garbage(gateway: Running) -> None:
    gateway.stub.garbage = True
    response = post(gateway, {"model": "turnwise", "messages": HI})
    assert response.status_code == 502
    assert "not JSON" in response.json()["error"]["message"]


def test_metrics_and_status(gateway: Running) -> None:
    post(gateway, {"model": "turnwise", "messages": HI})
    text = httpx.get(f"{gateway.url}/metrics", headers=gateway.admin).text
    assert 'turnwise_requests_total{route="/v1/chat/completions",status="200"} 1.0' in text
    assert 'turnwise_turns{state="waiting"} 1.0' in text
    status = httpx.get(f"{gateway.url}/v1/status", headers=gateway.admin).json()
    assert (status["turns"]["waiting"], status["failed_requests"]) == (1, 0)
    names = [m["id"] for m in httpx.get(f"{gateway.url}/v1/models", headers=gateway.auth).json()["data"]]
    assert names == ["turnwise", "turnwise@base"]
