"""Requests that schemathesis makes from our OpenAPI document, right and wrong: the gateway fails on none of them."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.core import NOT_SET
from schemathesis.generation import GenerationMode

from tests.support.in_process import in_process
from tests.support.mutations import BODIES
from turnwise.config import Config
from turnwise.gateway.wire.openapi import request_schema
from turnwise.tokens.rendering import load_renderer

NAMES = {"/v1/chat/completions": "chat", "/v1/responses": "responses", "/v1/messages": "messages"}


@pytest.mark.parametrize("mode", GenerationMode)
@pytest.mark.parametrize("path", NAMES)
def test_requests_made_from_the_document(config: Config, qwen3_dir: Any, path: str, mode: GenerationMode) -> None:
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        gateway = runner.run(stack.enter_async_context(in_process(config, load_renderer(qwen3_dir), ["hm", ""])))
        transport = httpx.ASGITransport(app=gateway.app, raise_app_exceptions=False)
        client = runner.run(stack.enter_async_context(httpx.AsyncClient(transport=transport, base_url="http://test")))
        document = gateway.app.openapi()
        operation = schemathesis.openapi.from_dict(document)[path]["POST"]

        async def ask(body: Any) -> httpx.Response:
            content = body if isinstance(body, bytes) else json.dumps(body).encode("utf-8", "surrogatepass")
            async with asyncio.timeout(20):
                return await client.post(path, content=content, headers={"content-type": "application/json"})

        @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), database=None)
        @given(case=operation.as_strategy(generation_mode=mode))
        def one(case: Any) -> None:
            body = None if case.body is NOT_SET else case.body
            answer = runner.run(ask(body))
            assert answer.status_code < 500, answer.text
            assert "internal_error" not in answer.text
            if isinstance(body, dict) and "model" in body:
                body = body | {"model": "turnwise"}
                answer = runner.run(ask(body))
                assert answer.status_code < 500, answer.text

        one()
        runner.run(stack.aclose())


def test_the_document_knows_every_field_of_the_valid_bodies() -> None:
    for path, body in BODIES:
        if path in NAMES:
            schema = request_schema(NAMES[path])["requestBody"]["content"]["application/json"]["schema"]
            assert body.keys() <= schema["properties"].keys()
            assert "$ref" not in json.dumps(schema)
