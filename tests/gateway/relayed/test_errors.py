"""An upstream's refusals as this gateway's clients see them: in their own format, with the code that they look for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.gateway.relayed.test_upstream import in_front_of
from tests.support.raw_http import Part, answer, sse

OPENAI_SAYS = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens."
OPENAI_LONG = answer(
    400,
    {
        "error": {
            "message": OPENAI_SAYS,
            "type": "invalid_request_error",
            "param": "messages",
            "code": "context_length_exceeded",
        }
    },
)
SERVER_LONG = answer(400, {"object": "error", "message": OPENAI_SAYS, "type": "BadRequestError", "code": 400})
STREAMED_LONG = sse({"error": {"message": OPENAI_SAYS, "code": "context_length_exceeded"}})
ANTHROPIC_ERROR = {
    "type": "error",
    "error": {"type": "invalid_request_error", "message": "prompt is too long: 9001 tokens > 8192 maximum"},
}
ANTHROPIC_LONG = answer(400, ANTHROPIC_ERROR)


@pytest.mark.parametrize("path", ["chat/completions", "responses", "messages"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("api", "said"),
    [
        ("openai", OPENAI_LONG),
        ("openai", SERVER_LONG),
        ("openai", STREAMED_LONG),
        ("anthropic", ANTHROPIC_LONG),
        ("anthropic", sse(ANTHROPIC_ERROR)),
    ],
    ids=["openai", "openai-compatible", "openai in its stream", "anthropic", "anthropic in its stream"],
)
async def test_a_prompt_that_is_too_long_is_said_as_clients_expect(
    tmp_path: Path, path: str, stream: bool, api: str, said: list[Part]
) -> None:
    async with in_front_of(tmp_path, said, api=api) as fronted:
        limit = {"max_tokens": 9} if path == "messages" else {}
        refused = await fronted.ask(path, stream=stream, **limit)
    error = refused.json()["error"]
    assert (refused.status_code, error["type"]) == (400, "invalid_request_error")
    if path == "messages":
        assert error["message"].startswith("prompt is too long")
    else:
        assert (error["code"], error["param"]) == ("context_length_exceeded", "messages")
    assert "8192" in error["message"]


@pytest.mark.parametrize(
    ("status", "openai_type", "anthropic_type"),
    [
        (400, "invalid_request_error", "invalid_request_error"),
        (401, "authentication_error", "authentication_error"),
        (402, "insufficient_quota", "billing_error"),
        (403, "permission_error", "permission_error"),
        (404, "not_found_error", "not_found_error"),
        (413, "invalid_request_error", "request_too_large"),
        (418, "invalid_request_error", "invalid_request_error"),
        (422, "invalid_request_error", "invalid_request_error"),
        (429, "rate_limit_error", "rate_limit_error"),
        (500, "api_error", "api_error"),
        (503, "service_unavailable_error", "overloaded_error"),
        (504, "timeout_error", "timeout_error"),
        (529, "service_unavailable_error", "overloaded_error"),
    ],
)
async def test_each_status_has_its_type_in_both_shapes(
    tmp_path: Path, status: int, openai_type: str, anthropic_type: str
) -> None:
    async with in_front_of(tmp_path, answer(status, {"error": {"message": "no"}})) as fronted:
        chat = await fronted.ask()
        messages = await fronted.ask("messages", max_tokens=9)
    assert (chat.status_code, messages.status_code) == (status, status)
    assert chat.json()["error"]["type"] == openai_type
    assert messages.json()["error"]["type"] == anthropic_type


@pytest.mark.parametrize(
    ("status", "given", "told"),
    [
        (429, "insufficient_quota", "insufficient_quota"),
        (404, "model_not_found", "model_not_found"),
        (429, None, "engine_overloaded"),
        (529, None, "engine_overloaded"),
        (503, 503, "engine_unavailable"),
        (400, {"a": 1}, "engine_error"),
        (400, "x" * 1000, "engine_error"),
    ],
)
async def test_the_upstreams_own_code_reaches_the_client(tmp_path: Path, status: int, given: Any, told: str) -> None:
    async with in_front_of(tmp_path, answer(status, {"error": {"message": "no", "code": given}})) as fronted:
        refused = await fronted.ask()
    assert (refused.status_code, refused.json()["error"]["code"]) == (status, told)


async def test_a_refusal_that_only_speaks_of_tokens_is_no_overflow(tmp_path: Path) -> None:
    said = {"error": {"message": "max_tokens: 9000 > 4096, which is the maximum allowed number of output tokens"}}
    async with in_front_of(tmp_path, answer(400, said)) as fronted:
        refused = await fronted.ask()
    assert refused.json()["error"]["code"] == "engine_error"
