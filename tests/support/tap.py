"""A tap between a client and the gateway: writes down what the client really sends, and passes it on as it is."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse

HOP = {"host", "content-length", "connection", "transfer-encoding", "accept-encoding"}
SECRET = {"authorization", "x-api-key", "cookie"}
LONGEST = 600
"""Texts longer than this are shortened in a recording; who is in them stays recognisable by a length and a hash."""


@dataclass
class Tap:
    """`seen` has every request that passed, in order."""

    url: str
    seen: list[dict[str, Any]] = field(default_factory=list)

    def app(self) -> FastAPI:
        app = FastAPI()
        client = httpx.AsyncClient(base_url=self.url, timeout=120)

        @app.api_route("/{path:path}", methods=["GET", "POST", "HEAD"])
        async def relay(path: str, request: Request) -> Response:
            body = await request.body()
            headers = {k: v for k, v in request.headers.items() if k not in HOP}
            record: dict[str, Any] = {
                "method": request.method,
                "path": f"/{path}",
                "query": str(request.url.query),
                "headers": {k: "***" if k in SECRET else v for k, v in headers.items()},
                "bytes": len(body),
                "body": json.loads(body) if body[:1] in (b"{", b"[") else body.decode("utf-8", "replace"),
            }
            self.seen.append(record)
            target = f"/{path}" + (f"?{request.url.query}" if request.url.query else "")
            upstream = await client.send(
                client.build_request(request.method, target, content=body, headers=headers), stream=True
            )
            record["status"] = upstream.status_code
            record["turn"] = upstream.headers.get("x-turnwise-turn-id")

            async def pass_on() -> AsyncGenerator[bytes, None]:
                try:
                    async for part in upstream.aiter_raw():
                        yield part
                finally:
                    await upstream.aclose()

            kept = {k: v for k, v in upstream.headers.items() if k not in HOP}
            return StreamingResponse(pass_on(), upstream.status_code, headers=kept)

        return app

    def posts(self) -> list[dict[str, Any]]:
        return [record for record in self.seen if record["method"] == "POST"]


def write_recording(path: Path, client: str, records: list[dict[str, Any]], replace: dict[str, str]) -> None:
    """The requests as a JSON fixture. `replace` maps what must not be written (a token, a folder) to what stands in."""
    text = json.dumps({"client": client, "requests": [_shorten(r) for r in records]}, ensure_ascii=False, indent=1)
    for secret, stand_in in replace.items():
        text = text.replace(secret, stand_in)
    path.write_text(text + "\n", encoding="utf-8")


def _shorten(value: Any) -> Any:
    """Long texts keep their beginning and end, so that equal texts stay equal and different ones different."""
    if isinstance(value, str) and len(value) > LONGEST:
        import hashlib

        mark = f"…[{len(value)} characters, {hashlib.sha256(value.encode()).hexdigest()[:12]}]…"
        return value[: LONGEST // 2] + mark + value[-LONGEST // 3 :]
    if isinstance(value, dict):
        return {k: _shorten(v) if k != "parameters" else v for k, v in value.items()}
    if isinstance(value, list):
        return [_shorten(v) for v in value]
    return value
