"""Clients of one wire format, streamed or not: what a test says in one way, each format says in its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.conftest import Running
from tests.gateway.encoders import Habits, chat_body, messages_body, responses_body
from tests.support.wire import TOOL, ChatMessage, events_of
from turnwise.journal import WholeTurn

Headers = dict[str, str]
Body = Callable[[list[ChatMessage], Habits], dict[str, Any]]

FORMATS: dict[str, tuple[str, Body, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", chat_body, {"type": "function", "function": TOOL}),
    "responses": ("/v1/responses", responses_body, {"type": "function"} | TOOL),
    "messages": ("/v1/messages", messages_body, {"name": TOOL["name"], "input_schema": TOOL["parameters"]}),
}
LIMITS = {"chat": "max_tokens", "responses": "max_output_tokens", "messages": "max_tokens"}
STOPS = {"chat": "stop", "messages": "stop_sequences"}
"""The fields for a limit and for stop strings; responses have none for the latter."""


def user(text: str) -> ChatMessage:
    return {"role": "user", "content": text}


class Caller:
    """A client of one format, streamed or not. ``more`` are fields of the body as the format names them."""

    def __init__(self, gateway: Running, name: str, stream: bool) -> None:
        self.gateway, self.name, self.stream = gateway, name, stream
        self.path, self.body, self.tool = FORMATS[name]

    def post(
        self,
        messages: list[ChatMessage],
        prefix: str = "",
        tools: bool = False,
        headers: Headers | None = None,
        **more: Any,
    ) -> httpx.Response:
        return self.send(self.body(messages, Habits()) | more, prefix, tools, headers)

    def send(
        self, body: dict[str, Any], prefix: str = "", tools: bool = False, headers: Headers | None = None
    ) -> httpx.Response:
        body = body | {"stream": self.stream} | ({"tools": [self.tool]} if tools else {})
        url = f"{self.gateway.url}{prefix}{self.path}"
        return httpx.post(url, headers=self.gateway.auth | (headers or {}), json=body, timeout=60)

    def ask(
        self,
        messages: list[ChatMessage],
        prefix: str = "",
        tools: bool = False,
        headers: Headers | None = None,
        **more: Any,
    ) -> WholeTurn:
        return self.turn(self.post(messages, prefix, tools, headers, **more))

    def turn(self, response: httpx.Response) -> WholeTurn:
        assert response.status_code == 200, response.text
        turn = self.gateway.journal.turns.get(response.headers["x-turnwise-turn-id"])
        assert turn is not None
        return turn

    def answer(self, response: httpx.Response) -> dict[str, Any]:
        """The whole answer as a client of this format has it, put together by the SDK where it was streamed."""
        from tests.gateway.wire.test_round_trip import READERS

        if not self.stream:
            return response.json()
        return READERS[self.name][1](events_of(response.content)).model_dump(mode="json", exclude_none=True)


@dataclass
class Talk:
    """A conversation held by one client, which sends back what it was sent, in its own format.

    ``by_id``: with responses, it names the answer before instead of sending the history.
    """

    caller: Caller
    opening: list[ChatMessage]
    tools: bool = False
    by_id: bool = False
    turns: list[WholeTurn] = field(default_factory=list)
    last: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.key = "input" if self.caller.name == "responses" else "messages"
        self.body = self.caller.body(self.opening, Habits())

    def ask(self, **more: Any) -> WholeTurn:
        """Send the conversation as it stands; the answer becomes a part of it."""
        response = self.caller.send(self.body | more, tools=self.tools)
        self.turns.append(self.caller.turn(response))
        self.last = self.caller.answer(response)
        if self.by_id:
            self.body = self.body | {self.key: [], "previous_response_id": self.last["id"]}
        else:
            self.body = self.body | {self.key: [*self.body[self.key], *self._answer()]}
        return self.turns[-1]

    def say(self, text: str) -> None:
        self._add([user(text)])

    def give_results(self, *more: ChatMessage) -> int:
        """A result for every call of the last answer, and more behind them; gives how many calls there were."""
        ids = self._call_ids()
        results: list[ChatMessage] = [
            {"role": "tool", "tool_call_id": id, "content": json.dumps({"n": n})} for n, id in enumerate(ids)
        ]
        self._add([*results, *more])
        return len(ids)

    def _add(self, messages: list[ChatMessage]) -> None:
        added = self.caller.body(messages, Habits())[self.key] if messages else []
        self.body = self.body | {self.key: [*self.body[self.key], *added]}

    def _answer(self) -> list[dict[str, Any]]:
        if self.caller.name == "responses":
            return self.last["output"]
        if self.caller.name == "messages":
            return [{"role": "assistant", "content": self.last["content"]}]
        message = dict(self.last["choices"][0]["message"])
        if "tool_calls" in message:
            message["tool_calls"] = [{k: v for k, v in c.items() if k != "index"} for c in message["tool_calls"]]
        return [message]

    def _call_ids(self) -> list[str]:
        if self.caller.name == "responses":
            return [item["call_id"] for item in self.last["output"] if item["type"] == "function_call"]
        if self.caller.name == "messages":
            return [block["id"] for block in self.last["content"] if block["type"] == "tool_use"]
        return [call["id"] for call in self.last["choices"][0]["message"].get("tool_calls") or []]
