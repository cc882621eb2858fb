"""A proxy between gateway and engine that writes down the ids on the wire: a witness of what was sampled."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

import httpx
from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse


@dataclass
class Witness:
    """What passed: by prompt ids, the sampled ids, their log-probs and the model's name."""

    engine_url: str
    seen: list[tuple[list[int], list[int], list[float], str]] = field(default_factory=list)

    def app(self) -> FastAPI:
        app = FastAPI()
        headers = {"Content-Type": "application/json"}
        client = httpx.AsyncClient(base_url=self.engine_url, timeout=120, headers=headers)

        @app.post("/v1/completions")
        async def completions(request: Request) -> Response:
            body = await request.body()
            upstream = await client.send(client.build_request("POST", "/v1/completions", content=body), stream=True)

            async def relay() -> AsyncGenerator[bytes, None]:
                asked = json.loads(body)
                ids: list[int] = []
                logprobs: list[float] = []
                try:
                    async for line in upstream.aiter_lines():
                        if line.startswith("data: {"):
                            for choice in json.loads(line[6:]).get("choices", []):
                                ids += choice["token_ids"]
                                logprobs += choice["logprobs"]["token_logprobs"]
                        yield f"{line}\n".encode()
                finally:
                    await upstream.aclose()
                self.seen.append((asked["prompt"], ids, logprobs, asked["model"]))

            return StreamingResponse(relay(), upstream.status_code, media_type="text/event-stream")

        @app.api_route("/{path:path}", methods=["GET", "POST"])
        async def rest(path: str, request: Request) -> Response:
            answer = await client.request(request.method, f"/{path}", content=await request.body())
            return Response(answer.content, answer.status_code, media_type=answer.headers.get("content-type"))

        return app
