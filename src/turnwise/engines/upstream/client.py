"""The client of an API that takes messages and gives messages: OpenAI's chat completions or Anthropic's messages.

Such an upstream gives no token ids, so what it answers is recorded and judged but never trained on. Its errors keep
their status and their Retry-After, and its key, read from the environment, stands in no message and no log.

The makers' SDKs were tried in place of this file (docs/decisions/0010-rooms.md). They read an event and a refusal
without any limit, pass over events of Anthropic's stream that have no name of their own, and mend what an upstream sent
wrongly; `test_a_line_without_end_is_given_up` and eight more tests failed, and it was seven lines longer with them.

    upstream = make_upstream(config)
    async for event in upstream.chat(messages, tools, ChatParams(temperature=0.7), model="name"):
        ...  # UpstreamEvent: pieces of text, reasoning and tool calls as they come; finish_reason and usage at the end
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import httpx

from turnwise.config import Config
from turnwise.engines.http import engine_client, error_message, faults, key_from, retry_after, without_key
from turnwise.engines.upstream.anthropic_api import AnthropicWire
from turnwise.engines.upstream.conversation import (
    ChatParams,
    ToolCallPiece,
    UpstreamEvent,
    UpstreamUsage,
    WireFormat,
    check_types,
    count_calls,
)
from turnwise.engines.upstream.faults import code_in, fault
from turnwise.engines.upstream.openai_api import OpenAIWire
from turnwise.engines.upstream.refused_words import RefusedWords
from turnwise.engines.upstream.tool_names import FittingNames
from turnwise.errors import ConfigError, EngineError, EngineUnreachable
from turnwise.types import Message

__all__ = ["ChatParams", "ToolCallPiece", "UpstreamEngine", "UpstreamEvent", "UpstreamUsage", "make_upstream"]

LONGEST_LINE = 4 << 20
LONGEST_REFUSAL = 1 << 20
"""Bytes that are read for one event, and for a whole answer that is no stream, before it is given up."""
LINGER_S = 3.0
"""How long a finished answer is kept open for what may follow it, such as its usage."""


class UpstreamEngine:
    """Talks to one API. `model` is its name there (None: the one asked for), `stall_s` the longest silence."""

    def __init__(
        self, url: str, wire: type[WireFormat], key: str | None = None, model: str | None = None, stall_s: float = 60.0
    ) -> None:
        self.url = url.rstrip("/").removesuffix(wire.base_suffix)
        self._wire = wire
        self._key = key
        self._model = model
        self._refused_words = RefusedWords()
        self._linger_s = min(LINGER_S, stall_s / 2)
        self._client = engine_client(self.url, stall_s, wire().headers(key))

    async def chat(
        self, messages: list[Message], tools: list[dict[str, Any]] | None, params: ChatParams, *, model: str
    ) -> AsyncGenerator[UpstreamEvent, None]:
        """The answer to messages as it comes.

        Raises EngineError: the upstream's own status for a refusal, 502 for what is no answer, half of one or no
        server, 504 for silence. An answer that has its finish_reason is whole, however its stream then ends.
        Closing the iterator early hangs up.
        """
        wire = self._wire()
        names = FittingNames(messages, tools, wire.longest_name)
        told = names.messages(messages), names.tools(tools), names.params(params)
        until, calls = None, 0  # when the wait for what follows a finished answer ends
        begun, ended = {0}, set[int]()  # of the choices
        try:
            async with aclosing(self._events(wire, *told, self._model or model)) as events:
                while True:
                    async with asyncio.timeout_at(until):
                        data = await anext(events, None)
                    if data is None:
                        break
                    event = self._read(wire, data)
                    if event is None:
                        continue
                    calls = count_calls(event, calls)
                    begun, ended = begun | event.indices(ended=False), ended | event.indices(ended=True)
                    if until is None and len(ended) >= (params.as_given.get("n") or 1):
                        until = asyncio.get_running_loop().time() + self._linger_s
                    yield names.restored(event)
        except (EngineUnreachable, TimeoutError):
            if begun != ended:
                raise
        if begun != ended:
            raise EngineError("the upstream ended its stream in the middle of the answer", 502)

    async def healthy(self) -> bool:
        """Whether anything answers at the address: upstreams have no route for it that all of them know."""
        try:
            async with self._client.stream("GET", "/", timeout=5.0):
                return True
        except httpx.HTTPError:
            return False

    async def close(self) -> None:
        await self._client.aclose()

    async def _events(
        self,
        wire: WireFormat,
        messages: list[Message],
        tools: list[dict[str, Any]] | None,
        params: ChatParams,
        model: str,
    ) -> AsyncGenerator[str, None]:
        """The data of each event. Where the model refuses a word that the client did not choose, it is asked again."""
        while True:
            fitting = self._refused_words.fitting(params, model)
            body = wire.body(messages, tools, fitting, model)
            with faults("the upstream"):
                async with self._client.stream("POST", wire.path, json=body) as response:
                    if response.status_code != 200:
                        refusal = await _whole(response)
                        if self._refused_words.learn(fitting, model, refusal):
                            continue
                        raise self._refusal(refusal)
                    kind = response.headers.get("content-type", "")
                    if not kind.startswith("text/event-stream"):
                        raise self._no_stream(await _whole(response), kind)
                    async for line in _lines(response):
                        data = line[5:].strip() if line.startswith("data:") else ""
                        if data == "[DONE]":
                            return
                        if data:
                            yield data
                    return

    def _read(self, wire: WireFormat, data: str) -> UpstreamEvent | None:
        try:
            event = wire.read(json.loads(data))
            if event is not None:
                check_types(event)
            return event
        except EngineError as e:
            raise type(e)(without_key(str(e), self._key), e.status, e.retry_after, e.code) from None
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as e:
            raise EngineError(f"the upstream sent an event that is not understood: {type(e).__name__}", 502) from e

    def _refusal(self, response: httpx.Response) -> EngineError:
        status = response.status_code
        if "html" in response.headers.get("content-type", ""):
            said = "with a web page"
        else:
            said = f"with: {without_key(error_message(response), self._key)}" if response.content else "without a word"
        if 300 <= status < 400:
            return EngineError(f"the upstream redirects (status {status}); set engine.url to where it leads", 502)
        hint = "; its key is read from the variable that engine.api_key_env names" if status in (401, 403) else ""
        message = f"the upstream answered {status} {said}{hint}"
        return fault(message, status if status >= 400 else 502, self._code(response), retry_after(response.headers))

    def _code(self, response: httpx.Response) -> Any:
        try:
            code = code_in(response.json())
        except (ValueError, RecursionError):
            return None
        return without_key(code, self._key) if isinstance(code, str) else code

    def _no_stream(self, response: httpx.Response, kind: str) -> EngineError:
        if "html" in kind:
            said = "a web page; is engine.url the base address of its API?"
        elif "json" in kind:
            said = f"no stream: {without_key(error_message(response), self._key)}"
        else:
            said = f"{kind or 'an unnamed kind of content'} in place of a stream of events"
        return EngineError(f"the upstream answered with {said}", 502)


def make_upstream(config: Config) -> UpstreamEngine:
    """The client of the configured upstream, with its key from the environment. Raises ConfigError without one address.

    No key is fine (a server of one's own often has none); an upstream that wants one says so with a 401.
    """
    engine = config.engine
    if engine.kind != "upstream" or len(engine.addresses) != 1:
        raise ConfigError('an upstream needs engine.kind = "upstream" and its address in engine.url')
    wire = AnthropicWire if engine.api == "anthropic" else OpenAIWire
    key = key_from(engine.api_key_env)
    return UpstreamEngine(engine.addresses[0], wire, key, engine.model, config.server.engine_stall_s)


async def _whole(response: httpx.Response) -> httpx.Response:
    """The response with all of its body. Raises EngineError (502) where that is too long to be a refusal."""
    body = b""
    async for data in response.aiter_bytes():
        body += data
        if len(body) > LONGEST_REFUSAL:
            raise EngineError(f"the upstream answered {response.status_code} with a body of more than 1 MiB", 502)
    kept = {name: response.headers[name] for name in ("content-type", "retry-after") if name in response.headers}
    return httpx.Response(response.status_code, headers=kept, content=body)


async def _lines(response: httpx.Response) -> AsyncGenerator[str, None]:
    """Lines as server-sent events have them. httpx's own end at U+2028 as well, which may stand inside of JSON.

    Raises EngineError (502) for a line without end.
    """
    begun = bytearray()
    async for data in response.aiter_bytes():
        first, *more = data.split(b"\n")
        begun += first
        for line in more:
            yield begun.decode("utf-8", "replace")
            begun = bytearray(line)
        if len(begun) > LONGEST_LINE:
            raise EngineError("the upstream sent an event of more than 4 MiB", 502)
    if begun:
        yield begun.decode("utf-8", "replace")
