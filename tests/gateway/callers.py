"""A client of one wire format, streamed or not: what a test says in one way, each format says in its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx

from tests.gateway.conftest import Agents
from tests.gateway.encoders import Habits, chat_body, messages_body, responses_body
from tests.support.wire import TOOL
from turnwise.types import Message, Turn

Headers = dict[str, str]
Body = Callable[[list[Message], Habits], dict[str, Any]]

FORMATS: dict[str, tuple[str, Body, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", chat_body, {"type": "function", "function": TOOL}),
    "responses": ("/v1/responses", responses_body, {"type": "function"} | TOOL),
    "messages": ("/v1/messages", messages_body, {"name": TOOL["name"], "input_schema": TOOL["parameters"]}),
}


def user(text: str) -> Message:
    return {"role": "user", "content": text}


class Caller:
    """A client of one format, streamed or not."""

    def __init__(self, qwen: Agents, name: str, stream: bool) -> None:
        self.qwen, self.stream = qwen, stream
        self.path, self.body, self.tool = FORMATS[name]

    def post(
        self, messages: list[Message], prefix: str = "", tools: bool = False, headers: Headers | None = None
    ) -> httpx.Response:
        body = self.body(messages, Habits()) | {"stream": self.stream} | ({"tools": [self.tool]} if tools else {})
        url = f"{self.qwen.url}{prefix}{self.path}"
        return httpx.post(url, headers=self.qwen.auth | (headers or {}), json=body, timeout=20)

    def ask(
        self, messages: list[Message], prefix: str = "", tools: bool = False, headers: Headers | None = None
    ) -> Turn:
        response = self.post(messages, prefix, tools, headers)
        assert response.status_code == 200, response.text
        return self.turn(response)

    def turn(self, response: httpx.Response) -> Turn:
        turn = self.qwen.journal.get_turn(response.headers["x-turnwise-turn-id"])
        assert turn is not None
        return turn
