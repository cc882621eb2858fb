"""The client of an SGLang server, over its native token-id API (`/generate`).

SGLang repeats the whole answer so far in every event unless it was started with `--incremental-streaming-output`; both
ways are understood. Its log-probs are of the sampling temperature and from before top-k and top-p, as ours are, unless
SGLANG_RETURN_ORIGINAL_LOGPROB is set in its environment, which this client finds out, or `top_k` is 1, which it takes
for temperature 0. Log-probs that are not of the sampling temperature are dropped, never passed on.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from turnwise.engines.base import BASE_MODEL, Chunk, SamplingParams, bent
from turnwise.engines.events import in_the_form_of, typed
from turnwise.engines.http import send
from turnwise.engines.logprob_check import SAME_EITHER_WAY
from turnwise.engines.token_server import TokenServer
from turnwise.errors import EngineError, EngineUnreachable, UnknownModel
from turnwise.pictures.placed import ShownPicture

NOT_LOADED = "not loaded"


class SglangEngine(TokenServer):
    """Talks to one SGLang server."""

    NO_ADAPTERS = (
        "{url} takes no adapters while it serves, so no version can be published; start it with --enable-lora, "
        "or set train.enabled = false"
    )
    RAW_LOGPROBS = (
        "the SGLang server at {url} gives log-probs from before the temperature, so those of answers at a temperature "
        "other than 1 are not recorded; start it without SGLANG_RETURN_ORIGINAL_LOGPROB"
    )

    def __init__(self, url: str, stall_s: float = 60.0, api_key: str | None = None) -> None:
        super().__init__(url, stall_s, api_key)
        self._loaded: dict[str, Path] = {}

    async def max_model_len(self) -> int:
        if self._max_model_len is None:
            response = await self._send("GET", "/v1/models")
            try:
                self._max_model_len = int(next(m["max_model_len"] for m in response.json()["data"]))
            except (ValueError, KeyError, TypeError, StopIteration) as e:
                raise EngineError(f"what answers at {self.url}/v1/models is not an SGLang server", 502) from e
        return self._max_model_len

    async def generate(
        self,
        model: str,
        prompt_ids: list[int],
        params: SamplingParams,
        *,
        affinity: str = "",
        pictures: Sequence[ShownPicture] = (),
    ) -> AsyncGenerator[Chunk, None]:
        if pictures:
            raise EngineError("an SGLang server is sent token ids without pictures", 400)
        same = params.temperature in SAME_EITHER_WAY
        usable = (same and not params.penalised) or (
            (same or params.top_k != 1) and await self.logprobs_follow_temperature()
        )
        answer = AnswerProgress(params.stop)
        async with aclosing(self._events.post("/generate", _request(model, prompt_ids, params))) as events:
            async for together in events:
                for event in together:
                    with in_the_form_of("/generate"):
                        chunk = typed(answer.feed(event))
                    if chunk.token_ids or chunk.text or chunk.finish_reason:
                        yield chunk if usable else replace(chunk, logprobs=None)
        if not answer.finished:
            raise EngineUnreachable("the engine ended the stream before the answer was complete", 502)

    async def _probe(self, temperature: float) -> float:
        """The log-prob of the likeliest token, whichever was sampled."""
        body = _request(BASE_MODEL, [1, 2, 3], SamplingParams(1, temperature, 1.0, 0, None, (), ()))
        response = await self._send("POST", "/generate", body | {"stream": False, "top_logprobs_num": 1})
        try:
            return float(response.json()["meta_info"]["output_top_logprobs"][0][0][0])
        except (ValueError, KeyError, TypeError, IndexError) as e:
            raise EngineError(f"what answers at {self.url}/generate is not an SGLang server", 502) from e

    async def load_adapter(self, name: str, path: Path) -> None:
        """Load a PEFT directory under a name. One of that name which is not ours is taken away first."""
        body = {"lora_name": name, "lora_path": str(path)}
        try:
            await self._send("POST", "/load_lora_adapter", body)
        except EngineError as e:
            if "already" not in str(e):
                raise
            if self._loaded.get(name) != path:
                await self._send("POST", "/unload_lora_adapter", {"lora_name": name})
                await self._send("POST", "/load_lora_adapter", body)
        self._loaded[name] = path

    async def unload_adapter(self, name: str) -> None:
        """Forget an adapter. The server itself waits for the requests that use it."""
        self._loaded.pop(name, None)
        try:
            await self._send("POST", "/unload_lora_adapter", {"lora_name": name})
        except EngineError as e:
            if not any(phrase in str(e) for phrase in (NOT_LOADED, "does not exist")):
                raise

    async def takes_adapters(self) -> bool:
        """Whether adapters can be loaded while it serves. Asked by unloading one that cannot be there."""
        response = await send(self._client, "POST", "/unload_lora_adapter", {"lora_name": "no-such-adapter"})
        return "not enabled" not in response.text


def _request(model: str, prompt_ids: list[int], params: SamplingParams) -> dict[str, Any]:
    sampling: dict[str, Any] = {
        "max_new_tokens": params.max_tokens,
        "temperature": params.temperature,
        "top_p": params.top_p,
        "top_k": params.top_k if params.top_k > 0 else -1,
        "stop_token_ids": list(params.stop_token_ids),
    }
    sampling |= bent(params)
    if params.stop:
        sampling["stop"] = list(params.stop)
    if params.seed is not None:
        sampling["sampling_seed"] = params.seed
    if params.structured is not None:
        sampling["json_schema"] = json.dumps(params.structured)
    body: dict[str, Any] = {
        "input_ids": prompt_ids,
        "sampling_params": sampling,
        "return_logprob": True,
        "stream": True,
    }
    return body if model == BASE_MODEL else body | {"lora_path": model}


@dataclass
class AnswerProgress:
    """What came of an answer so far; `feed` turns each event into what is new in it."""

    stop: tuple[str, ...] = ()
    count: int = 0
    text: str = field(default="", repr=False)
    sent: int = 0
    finished: bool = False

    def feed(self, event: dict[str, Any]) -> Chunk:
        """The new tokens and text of one event. Raises EngineError for a fault that the server reports."""
        if "error" in event:
            raise _fault(event["error"], 502 if self.count else 400)
        meta = event.get("meta_info") or {}
        finish = meta.get("finish_reason") or {}
        if finish.get("type") == "abort":
            status = finish.get("status_code")
            message = f"the engine gave the answer up: {finish.get('message') or 'it did not say why'}"
            raise EngineError(message, status if status in (400, 429, 503) else 502)
        ids = event.get("output_ids") or []
        total = int(meta.get("completion_tokens") or len(ids))
        whole = len(ids) == total  # else the event has only what is new
        new = ids[self.count :] if whole else ids
        logprobs = _tail(meta.get("output_token_logprobs"), new)
        self.count += len(new)
        text = event.get("text") or ""
        self.text = text if whole else self.text + text
        self.finished = bool(finish)
        matched = finish.get("matched")
        return Chunk(
            token_ids=new,
            logprobs=logprobs,
            text=self._release(),
            finish_reason=("length" if finish.get("type") == "length" else "stop") if finish else None,
            stop_string=matched if isinstance(matched, str) else None,
            cached_tokens=meta.get("cached_tokens"),
        )

    def _release(self) -> str:
        """Text that is certain: the server cuts a stop string only at the end, so what may be its start waits."""
        end = len(self.text)
        if not self.finished:
            end -= max((_overlap(self.text, stop) for stop in self.stop), default=0)
        piece = self.text[self.sent : end]
        self.sent = max(self.sent, end)
        return piece


def _tail(triples: list[Any] | None, new: list[int]) -> list[float] | None:
    """The log-probs of the newest tokens, from triples (log-prob, id, text); None where they are not of these ids."""
    if not new:
        return []
    last = (triples or [])[-len(new) :]
    if [t[1] for t in last] != new or any(t[0] is None for t in last):
        return None
    return [float(t[0]) for t in last]


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of `text` could be the beginning of `stop`."""
    return next((n for n in range(min(len(stop), len(text)), 0, -1) if text.endswith(stop[:n])), 0)


def _fault(error: Any, status: int) -> EngineError:
    message = str(error.get("message") if isinstance(error, dict) else error)
    if NOT_LOADED in message:
        return UnknownModel(message, 404)
    return EngineError(f"the engine refused the request: {message}", status)
