"""A tap between a client and the gateway: writes down what the client really sends, and passes it on as it is."""

from __future__ import annotations

import hashlib
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
    text = json.dumps([_shorten(record) for record in records], ensure_ascii=False)
    for secret, stand_in in replace.items():
        text = text.replace(secret, stand_in)
    shared: dict[str, Any] = {}
    requests = _share(json.loads(text), shared)
    body = {"client": client, "shared": shared, "requests": requests}
    path.write_text(json.dumps(body, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def read_recording(path: Path) -> list[dict[str, Any]]:
    """The requests of a fixture, each whole."""
    body = json.loads(path.read_text(encoding="utf-8"))

    def whole(value: Any) -> Any:
        if isinstance(value, dict):
            if set(value) == {"$shared"}:
                return whole(body["shared"][value["$shared"]])
            return {key: whole(inner) for key, inner in value.items()}
        return [whole(inner) for inner in value] if isinstance(value, list) else value

    return whole(body["requests"])


def _share(value: Any, shared: dict[str, Any]) -> Any:
    """Clients resend their tools and their history with each request: what is long is written once."""
    if isinstance(value, list):
        return [_share(inner, shared) for inner in value]
    if not isinstance(value, dict):
        return value
    text = json.dumps(value, sort_keys=True)
    if len(text) > 300 and ("role" in value or "type" in value or "input_schema" in value):
        name = hashlib.sha256(text.encode()).hexdigest()[:12]
        shared[name] = value
        return {"$shared": name}
    return {key: _share(inner, shared) for key, inner in value.items()}


def _shorten(value: Any) -> Any:
    """Long texts keep their beginning and end, so that equal texts stay equal and different ones different."""
    if isinstance(value, str) and len(value) > LONGEST:
        mark = f"…[{len(value)} characters, {hashlib.sha256(value.encode()).hexdigest()[:12]}]…"
        return value[: LONGEST // 2] + mark + value[-LONGEST // 3 :]
    if isinstance(value, dict):
        return {k: _shorten(v) if k != "parameters" else v for k, v in value.items()}
    if isinstance(value, list):
        return [_shorten(v) for v in value]
    return value
