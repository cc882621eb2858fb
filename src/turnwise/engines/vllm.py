"""The client of a vLLM server's token-id API. The local engine speaks the same, so this is the client of both."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx

from turnwise.engines.base import Chunk, SamplingParams
from turnwise.errors import EngineError

BASE_MODEL = "base"
"""The name under which the engine serves the model without an adapter."""


class UnknownModel(EngineError):
    """The engine does not know the adapter, for example because it was restarted."""


class EngineUnreachable(EngineError):
    """Nothing answers at the engine's address, or it went away in the middle of an answer."""


class VllmEngine:
    """Talks to one vLLM-compatible server at `url`. `stall_s` is the longest wait for the next token."""

    def __init__(self, url: str, stall_s: float = 60.0) -> None:
        self.url = url
        limits = httpx.Limits(max_connections=1024, max_keepalive_connections=256)
        self._client = httpx.AsyncClient(
            base_url=url, timeout=httpx.Timeout(stall_s, connect=5.0, pool=stall_s), limits=limits, trust_env=False
        )
        self._max_model_len: int | None = None

    async def max_model_len(self) -> int:
        if self._max_model_len is None:
            models = (await self._send("GET", "/v1/models")).json()["data"]
            self._max_model_len = int(next(m["max_model_len"] for m in models if m.get("max_model_len")))
        return self._max_model_len

    async def generate(self, model: str, prompt_ids: list[int], params: SamplingParams) -> AsyncGenerator[Chunk, None]:
        body: dict[str, Any] = {
            "model": model,
            "prompt": prompt_ids,
            "max_tokens": params.max_tokens,
            "temperature": params.temperature,
            "top_p": params.top_p,
            "top_k": params.top_k,
            "stop_token_ids": list(params.stop_token_ids),
            "stream": True,
            "logprobs": 0,
            "return_token_ids": True,
            "stream_options": {"include_usage": True},
        }
        if params.seed is not None:
            body["seed"] = params.seed
        if params.stop:
            body["stop"] = list(params.stop)
        finished = False
        try:
            async with self._client.stream("POST", "/v1/completions", json=body) as response:
                if response.status_code != 200:
                    await response.aread()
                    raise _refusal(response)
                async for line in response.aiter_lines():
                    if not line.startswith("data:"):
                        continue
                    data = line[5:].strip()
                    if data == "[DONE]":
                        break
                    chunk = _chunk(json.loads(data))
                    if chunk is None:
                        continue
                    finished = finished or chunk.finish_reason is not None
                    yield chunk
        except httpx.TimeoutException as e:
            raise EngineError("the engine sent no token for too long; see its log", 504) from e
        except httpx.HTTPError as e:
            raise EngineUnreachable(f"the engine went away: {type(e).__name__}", 502) from e
        except json.JSONDecodeError as e:
            raise EngineError(f"the engine sent something that is not JSON: {e}", 502) from e
        if not finished:
            raise EngineUnreachable("the engine ended the stream before the answer was complete", 502)

    async def load_adapter(self, name: str, path: Path) -> None:
        await self._send("POST", "/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(path)})

    async def unload_adapter(self, name: str) -> None:
        await self._send("POST", "/v1/unload_lora_adapter", {"lora_name": name})

    async def loaded_models(self) -> list[str]:
        """The base model and all adapters the server can serve now."""
        return [model["id"] for model in (await self._send("GET", "/v1/models")).json()["data"]]

    async def healthy(self) -> bool:
        try:
            return (await self._client.get("/health", timeout=5.0)).status_code == 200
        except httpx.HTTPError:
            return False

    async def close(self) -> None:
        await self._client.aclose()

    async def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> httpx.Response:
        try:
            response = await self._client.request(method, path, json=body)
        except httpx.TimeoutException as e:
            raise EngineError(f"the engine did not answer {path} in time", 504) from e
        except httpx.HTTPError as e:
            raise EngineUnreachable(f"no engine answers at {self.url}: {type(e).__name__}", 502) from e
        if response.status_code != 200:
            raise _refusal(response)
        return response


def _chunk(event: dict[str, Any]) -> Chunk | None:
    """One server-sent event as a chunk; None for the usage event at the end."""
    if "error" in event:
        error = event["error"]
        message = error.get("message", "") if isinstance(error, dict) else str(error)
        raise EngineError(f"the engine failed in the middle of an answer: {message}", 502)
    if not event.get("choices"):
        return None
    choice = event["choices"][0]
    logprobs = choice.get("logprobs")
    token_ids = choice.get("token_ids") or []
    values = logprobs.get("token_logprobs") if logprobs else None
    if values is not None and (len(values) != len(token_ids) or any(v is None for v in values)):
        values = None  # missing is missing: never padded
    stop_reason = choice.get("stop_reason")
    return Chunk(
        token_ids=token_ids,
        logprobs=values,
        text=choice.get("text") or "",
        finish_reason=choice.get("finish_reason"),
        stop_string=stop_reason if isinstance(stop_reason, str) else None,
    )


def _refusal(response: httpx.Response) -> EngineError:
    try:
        body = response.json()
        error = body.get("error", body)
        message = error.get("message") or str(error)
    except (json.JSONDecodeError, AttributeError):
        message = response.text[:200]
    if response.status_code == 404:
        return UnknownModel(message, 404)
    return EngineError(message, response.status_code if response.status_code in (400, 429, 503) else 502)
