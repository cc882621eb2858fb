"""An engine that answers at once with a given text, over the same API as the real ones.

It exists to measure the gateway without a model's time in the figures, and to test the gateway's behaviour when an
engine is slow, full, or dies in the middle of an answer. It computes nothing: its log-probs are made up.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from tokenizers import Tokenizer

Reply = Callable[[str], str]


@dataclass
class StubEngine:
    """`reply` maps a prompt's text to the answer's. The switches make it misbehave; `sampled` is its own record."""

    tokenizer: Tokenizer
    reply: Reply
    max_model_len: int = 4096
    end_token: int = 2
    token_delay_s: float = 0.0
    die_after: int | None = None  # break the connection after this many tokens
    refuse_with: int | None = None  # answer with this status
    garbage: bool = False  # send a line that is not JSON
    refuse_load: bool = False  # load no adapter
    load_delay_s: float = 0.0
    loading: bool = False
    logprobs: str = "given"  # or "absent", "null", "short": how those of every second token are left out
    finish: str | None = None  # end with this reason, whatever it was
    known: set[str] = field(default_factory=lambda: {"base"})
    loads: list[str] = field(default_factory=list)
    sampled: list[tuple[list[int], list[int], str]] = field(default_factory=list)  # prompt ids, response ids, model
    asked: list[dict[str, Any]] = field(default_factory=list)  # each request but its prompt
    structured: list[Any] = field(default_factory=list)  # what each answer was to be held to
    cancelled: int = 0

    def app(self) -> FastAPI:
        app = FastAPI()

        @app.get("/health")
        async def health() -> Response:
            return Response(status_code=200)

        @app.get("/v1/models")
        async def models() -> dict[str, Any]:
            return {"data": [{"id": name, "max_model_len": self.max_model_len} for name in sorted(self.known)]}

        @app.post("/v1/load_lora_adapter")
        async def load(request: Request) -> Response:
            name = (await request.json())["lora_name"]
            if self.refuse_load:
                return JSONResponse({"error": {"message": f"the stub does not load {name}"}}, 400)
            self.loading = True
            await asyncio.sleep(self.load_delay_s)
            self.loading = False
            self.known.add(name)
            self.loads.append(name)
            return Response("loaded")

        @app.post("/v1/unload_lora_adapter")
        async def unload(request: Request) -> Response:
            self.known.discard((await request.json())["lora_name"])
            return Response("unloaded")

        @app.post("/v1/completions")
        async def completions(request: Request) -> Response:
            body = await request.json()
            if self.refuse_with is not None:
                return JSONResponse({"error": {"message": "the stub refuses"}}, self.refuse_with)
            self.asked.append({name: value for name, value in body.items() if name != "prompt"})
            self.structured.append(body.get("structured_outputs"))
            if body["model"] not in self.known:
                return JSONResponse({"error": {"message": f"no model {body['model']}"}}, 404)
            return StreamingResponse(self._events(body), media_type="text/event-stream")

        return app

    async def _events(self, body: dict[str, Any]) -> AsyncGenerator[bytes, None]:
        prompt: list[int] = body["prompt"]
        text = self.reply(self.tokenizer.decode(prompt, skip_special_tokens=False))
        stops = [text.index(s) for s in body.get("stop", []) if s in text]
        ids = [*self.tokenizer.encode(text, add_special_tokens=False).ids, self.end_token]
        limit = body["max_tokens"]
        finish = "stop" if len(ids) <= limit else "length"
        ids = ids[:limit]
        stop_string = None
        if stops and finish == "stop":
            cut = min(stops)
            stop_string = next(s for s in body["stop"] if text[cut:].startswith(s))
            shown = text[:cut]
            ids = self.tokenizer.encode(text[: cut + len(stop_string)], add_special_tokens=False).ids
        else:
            shown = self.tokenizer.decode(ids)
        self.sampled.append((prompt, ids, body["model"]))
        sent = 0
        try:
            for i, token in enumerate(ids):
                if self.die_after is not None and i >= self.die_after:
                    raise ConnectionResetError("the stub dies, as it was told to")
                if self.token_delay_s:
                    await asyncio.sleep(self.token_delay_s)
                if self.garbage:
                    yield b"data: {not json\n\n"
                last = i == len(ids) - 1
                done = shown if last else self.tokenizer.decode(ids[: i + 1])
                piece = "" if done.endswith("\ufffd") and not last else done[sent : len(shown)]
                sent += len(piece)
                choice = {
                    "index": 0,
                    "text": piece,
                    "token_ids": [token],
                    "logprobs": self._logprobs(i),
                    "finish_reason": (self.finish or finish) if last else None,
                    "stop_reason": stop_string if last else None,
                }
                yield f"data: {json.dumps({'choices': [choice]})}\n\n".encode()
        except (asyncio.CancelledError, GeneratorExit):  # hung up while it waited, or while it was sending
            self.cancelled += 1
            raise
        yield b"data: [DONE]\n\n"

    def _logprobs(self, i: int) -> dict[str, Any] | None:
        fault = self.logprobs if i % 2 else "given"
        if fault == "absent":
            return None
        return {"token_logprobs": {"null": [None], "short": []}.get(fault, [-0.125 * (i + 1)])}
