"""The client of a vLLM server's token-id API. The local engine speaks the same, so this is the client of both.

Log-probs that are not of the distribution that was sampled from are dropped, never passed on: a vLLM server gives them
before penalties and temperature unless it was started with `--logprobs-mode processed_logprobs`, and this client finds
that out.
"""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

from turnwise.engines.base import BASE_MODEL, Chunk, SamplingParams, bent, merged
from turnwise.engines.events import in_the_form_of, typed
from turnwise.engines.http import send
from turnwise.engines.logprob_check import SAME_EITHER_WAY
from turnwise.engines.token_route import NO_PICTURES, ROUTE, OtherIds, as_completion, is_to_these_ids, pictured
from turnwise.engines.token_server import TokenServer
from turnwise.errors import EngineError, EngineUnreachable, UnknownModel
from turnwise.pictures.placed import ShownPicture

COMPLETIONS = "/v1/completions"
__all__ = ["BASE_MODEL", "EngineUnreachable", "UnknownModel", "VllmEngine"]


class VllmEngine(TokenServer):
    """Talks to one vLLM-compatible server."""

    NO_ADAPTERS = (
        "{url} takes no adapters while it serves, so no version can be published; start it with --enable-lora and "
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True, or set train.enabled = false"
    )
    RAW_LOGPROBS = (
        "the vLLM server at {url} gives log-probs from before the temperature, so those of answers at another "
        "temperature than 1 are not recorded; start it with --logprobs-mode processed_logprobs"
    )

    _is_ours = False
    """Known once it was asked for its models: our own engine says that it is."""

    async def max_model_len(self) -> int:
        if self._max_model_len is None:
            models = await self._models()
            found = next((m["max_model_len"] for m in models if m.get("max_model_len")), None)
            if found is None:
                raise EngineError(
                    f"the engine at {self.url} does not say its context length; is it a vLLM server?", 502
                )
            names = [m.get("id") for m in models]
            if BASE_MODEL not in names:
                named = f"the engine at {self.url} calls its model {names[0]!r}"
                raise EngineError(f"{named}; start it with --served-model-name {BASE_MODEL}")
            self._max_model_len = int(found)
            self._is_ours = all(m.get("owned_by") == "turnwise" for m in models)
            if not any(m.get("owned_by") == "vllm" for m in models):
                self.logprob_check.known = True  # our own engine, or a stand-in for it
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
        same = params.temperature in SAME_EITHER_WAY and not params.penalised  # raw ones are from before both
        usable = same or await self.logprobs_follow_temperature()
        async with aclosing(self._sample(model, prompt_ids, params, pictures)) as chunks:
            async for chunk in chunks:
                yield chunk if usable else replace(chunk, logprobs=None)

    async def _sample(
        self, model: str, prompt_ids: list[int], params: SamplingParams, pictures: Sequence[ShownPicture] = ()
    ) -> AsyncGenerator[Chunk, None]:
        finished = False
        async with aclosing(self._asked(_request(model, prompt_ids, params), pictures)) as events:
            async for together in events:
                chunks, fault = [], None
                try:
                    for event in together:
                        with in_the_form_of(COMPLETIONS):
                            chunks += map(typed, _chunks(event))
                except EngineError as e:
                    fault = e
                if chunks:
                    chunk = merged(chunks)
                    finished = finished or chunk.finish_reason is not None
                    yield chunk
                if fault is not None:
                    raise fault
        if not finished:
            raise EngineUnreachable("the engine ended the stream before the answer was complete", 502)

    async def _asked(
        self, body: dict[str, Any], pictures: Sequence[ShownPicture]
    ) -> AsyncGenerator[list[dict[str, Any]], None]:
        """The events of a completion, by the route that takes what is asked."""
        if pictures:
            await self.max_model_len()  # says whose engine it is
        if not pictures or self._is_ours:
            features = {"features": _features(pictures)} if pictures else {}
            async with aclosing(self._events.post(COMPLETIONS, body | features)) as events:
                async for together in events:
                    yield together
            return
        asked, checked = await pictured(body, pictures), False
        try:
            async with aclosing(self._events.post(ROUTE, asked)) as events:
                async for together in events:
                    for event in together:
                        checked = checked or is_to_these_ids(event, body["prompt"])
                    yield [as_completion(event) for event in together]
        except OtherIds:
            raise
        except EngineError as e:
            if not checked and await self._has_no_route(e):
                raise EngineError(NO_PICTURES.format(url=self.url), 502) from e
            raise

    async def _has_no_route(self, refused: EngineError) -> bool:
        """Whether this error of a request with pictures means that there is no place to send one."""
        if refused.status not in (404, 502) or isinstance(refused, EngineUnreachable):
            return False  # a 403 or 405 of the server is a 502 by now
        with contextlib.suppress(EngineError):
            return not await self.takes_pictures()
        return False

    async def takes_pictures(self) -> bool:
        """Whether pictures can be sent beside token ids. Asked by a request that is none."""
        await self.max_model_len()
        if self._is_ours:
            return True  # our own engine takes them where its model sees
        return (await send(self._client, "POST", ROUTE, {})).status_code not in (403, 404, 405)

    async def logprobs_of(self, prompt_ids: list[int], answer_ids: list[int]) -> list[float]:
        """The log-prob [N] of each of N given answer ids behind a prompt, by the base model at temperature 1.

        Nothing is sampled from it. Raises EngineError where the server gives none.
        """
        ids = [*prompt_ids, *answer_ids]
        body = {"model": BASE_MODEL, "prompt": ids, "max_tokens": 1, "temperature": 0, "prompt_logprobs": 0}
        response = await self._send("POST", COMPLETIONS, body)
        try:
            given = response.json()["choices"][0]["prompt_logprobs"][len(prompt_ids) :]
            found = [float(each[str(token)]["logprob"]) for each, token in zip(given, answer_ids, strict=True)]
        except (ValueError, LookupError, TypeError) as e:
            raise EngineError(f"the engine at {self.url} gives no log-probs of given tokens", 502) from e
        return found

    async def logprobs_follow_temperature(self) -> bool:
        if self.logprob_check.known is None:
            await self.max_model_len()  # our own engine is known by it
        return await super().logprobs_follow_temperature()

    async def _probe(self, temperature: float) -> float:
        # With top_k 1 the same token is sampled at every temperature; processed log-probs are then 0.
        params = SamplingParams(1, temperature, 1.0, 1, 0, (), ())
        async with aclosing(self._sample(BASE_MODEL, [1, 2, 3], params)) as chunks:
            async for chunk in chunks:
                if chunk.logprobs:
                    return chunk.logprobs[0]
        return 0.0

    async def load_adapter(self, name: str, path: Path) -> None:
        """Load a PEFT directory under a name. One of that name from elsewhere is taken away first.

        It is not replaced in place: vLLM 0.32 then reads the adapter from disk again for every step that uses it.
        """
        body = {"lora_name": name, "lora_path": str(path)}
        try:
            await self._send("POST", "/v1/load_lora_adapter", body)
        except EngineError as e:
            there = next((m for m in await self._models() if m["id"] == name), None) if e.status == 400 else None
            if there is None:
                raise
            if there.get("root") != str(path):
                await self.unload_adapter(name)
                await self._send("POST", "/v1/load_lora_adapter", body)

    async def unload_adapter(self, name: str) -> None:
        with contextlib.suppress(UnknownModel):  # gone already
            await self._send("POST", "/v1/unload_lora_adapter", {"lora_name": name})

    async def takes_adapters(self) -> bool:
        """Whether adapters can be loaded while it serves. Asked by unloading one that cannot be there."""
        response = await send(self._client, "POST", "/v1/unload_lora_adapter", {"lora_name": "no-such-adapter"})
        return response.status_code != 405 and "error" in response.text

    async def _models(self) -> list[dict[str, Any]]:
        response = await self._send("GET", "/v1/models")
        try:
            return response.json()["data"]
        except (ValueError, KeyError, TypeError) as e:
            raise EngineError(f"what answers at {self.url}/v1/models is not a vLLM server", 502) from e


def _request(model: str, prompt_ids: list[int], params: SamplingParams) -> dict[str, Any]:
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
    body |= bent(params)
    if params.priority:  # a vLLM server that orders nothing refuses the field
        body["priority"] = params.priority
    if params.seed is not None:
        body["seed"] = params.seed
    if params.stop:
        body["stop"] = list(params.stop)
    if params.structured is not None:
        body["structured_outputs"] = {"json": params.structured}
    if params.grammar is not None:
        body["structured_outputs"] = params.grammar
    if params.call is not None:
        body["structured_outputs"] = {"structural_tag": json.dumps(params.call)}
    return body


def _features(pictures: Sequence[ShownPicture]) -> dict[str, Any]:
    """Where pictures stand, in the words of vLLM's token-id route; their files are a field of our own engine's."""
    places = [p.placed for p in pictures]
    return {
        "mm_hashes": {"image": [p.sha256 for p in places]},
        "mm_placeholders": {"image": [{"offset": p.start, "length": p.end - p.start} for p in places]},
        "files": {"image": [base64.b64encode(p.data).decode() for p in pictures]},
    }


def _chunks(event: dict[str, Any]) -> list[Chunk]:
    """One server-sent event as chunks: tokens, or at the end what the usage says of the prefix cache, or nothing."""
    if "error" in event:
        error = event["error"]
        message = error.get("message", "") if isinstance(error, dict) else str(error)
        raise EngineError(f"the engine failed in the middle of an answer: {message}", 502)
    if not event.get("choices"):
        details = (event.get("usage") or {}).get("prompt_tokens_details") or {}
        cached = details.get("cached_tokens")
        return [] if cached is None else [Chunk([], None, "", cached_tokens=cached)]
    choice = event["choices"][0]
    logprobs = choice.get("logprobs")
    token_ids = choice.get("token_ids") or []
    values = logprobs.get("token_logprobs") if logprobs else None
    if values is not None and (len(values) != len(token_ids) or any(v is None for v in values)):
        values = None  # missing is missing: never padded
    stop_reason = choice.get("stop_reason")
    return [
        Chunk(
            token_ids=token_ids,
            logprobs=values,
            text=choice.get("text") or "",
            finish_reason=choice.get("finish_reason"),
            stop_string=stop_reason if isinstance(stop_reason, str) else None,
        )
    ]
