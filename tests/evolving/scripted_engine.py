"""A real HTTP server that speaks what replays ask of a vLLM server, with what a test wants the model to say.

It stands in for a model that would follow a skill: the embedded ones hardly do. The tokenizer is the real one.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from tokenizers import Tokenizer

END = 2
"""The token that ends an answer of SmolLM2."""


class ScriptedEngine:
    """``says`` gives the answer to a prompt's text, ``likely`` the log-prob of every token of a text that is given.

    ``asked`` are the prompts that were answered; ``status`` and ``hangs`` say how it fails.
    """

    def __init__(self, tokenizer: Tokenizer, says: Callable[[str], str], likely: Callable[[str], float]) -> None:
        self.says, self.likely = says, likely
        self.asked: list[str] = []
        self.status, self.hangs = 200, False
        self._tokenizer = tokenizer

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/models", self._models),
                Route("/v1/completions", self._complete, methods=["POST"]),
            ]
        )

    async def _models(self, _: Request) -> JSONResponse:
        return JSONResponse({"data": [{"id": "base", "owned_by": "turnwise", "max_model_len": 4096}]})

    async def _complete(self, request: Request) -> Response:
        body: dict[str, Any] = await request.json()
        if self.hangs:
            await asyncio.sleep(60)
        if self.status != 200:
            return JSONResponse({"error": {"message": "overloaded"}}, self.status)
        text = self._tokenizer.decode(body["prompt"], skip_special_tokens=False)
        if body.get("prompt_logprobs") is not None:
            value = self.likely(text)
            given = [None, *({str(token): {"logprob": value}} for token in body["prompt"][1:])]
            return JSONResponse({"choices": [{"text": "", "prompt_logprobs": given}]})
        self.asked.append(text)
        ids = [*self._tokenizer.encode(self.says(text), add_special_tokens=False).ids, END]
        choice = {
            "text": "",
            "token_ids": ids,
            "finish_reason": "stop",
            "logprobs": {"token_logprobs": [-0.1] * len(ids)},
        }

        async def events() -> AsyncIterator[str]:
            yield f"data: {json.dumps({'choices': [choice]})}\n\n"
            yield "data: [DONE]\n\n"

        return StreamingResponse(events(), media_type="text/event-stream")
