"""A real HTTP server that answers as an OpenAI-compatible endpoint would, with what a test wants it to say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route


class ScriptedEndpoint:
    """``reply`` makes the answer of the prompt; ``asked`` are the prompts so far, ``status`` what HTTP says."""

    def __init__(self, reply: Callable[[str], str]) -> None:
        self.reply = reply
        self.asked: list[str] = []
        self.status = 200

    def app(self) -> Starlette:
        return Starlette(routes=[Route("/v1/chat/completions", self._complete, methods=["POST"])])

    async def _complete(self, request: Request) -> JSONResponse:
        body: dict[str, Any] = await request.json()
        prompt = "\n".join(message["content"] for message in body["messages"])
        self.asked.append(prompt)
        if self.status != 200:
            return JSONResponse({"error": {"message": "overloaded"}}, self.status)
        message = {"role": "assistant", "content": self.reply(prompt)}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return JSONResponse({"id": "c", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]})
