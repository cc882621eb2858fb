"""The capture path: a checked request becomes a recorded turn, is answered by the engine, and is made durable.

The order is fixed. The request, and its messages as the next state of the turn they answer, are in the journal before
generation starts; the complete answer is there before its last byte leaves. A client that goes away leaves an aborted
turn, an engine that fails leaves an excluded one, and neither loses what came before.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from renderers.base import ToolCallParseStatus

from turnwise.config import Config
from turnwise.engines.base import Chunk, Engine, SamplingParams
from turnwise.engines.chatml import OPEN_TOOL_CALL, parse_text
from turnwise.engines.rendering import Prompt, PromptRenderer
from turnwise.engines.vllm import EngineUnreachable, UnknownModel
from turnwise.gateway.chat import ChatRequest, Usage, for_model
from turnwise.gateway.errors import ApiError
from turnwise.gateway.serving import ServingVersions
from turnwise.gateway.sessions import Placement, chain_hashes, extend_hash, place, turn_kind
from turnwise.journal import Answer, Journal, NewTurn
from turnwise.journal.schema import unpack_ids, unpack_json
from turnwise.types import FinishReason, Message, TurnKind

log = logging.getLogger(__name__)

ENGINE_RETURN_S = 45.0
"""How long a request that has no token yet waits for an engine that is being restarted."""


@dataclass(frozen=True, slots=True)
class Client:
    """Who asks, and what they said of the session. ``key`` separates clients that share a token."""

    key: str
    session_id: str | None = None
    source: str = "lineage"
    turn_type: str | None = None
    session_done: bool = False
    retry_key: str | None = None
    is_retry: bool = False


@dataclass(slots=True)
class OpenTurn:
    """A turn under way. ``replay`` is the recorded answer when the request is a retry of an answered turn."""

    id: str
    session_id: str
    version: int
    request: ChatRequest
    tools: list[dict[str, Any]] | None
    prompt: Prompt
    params: SamplingParams
    context_hash: str
    session_done: bool
    replay: Final | None = None
    response_ids: list[int] = field(default_factory=list)
    logprobs: list[float] | None = field(default_factory=list)
    text: str = ""
    stop_string: str | None = None


@dataclass(frozen=True, slots=True)
class Delta:
    """New content of an answer, and the tokens (id, log-prob) that came with it."""

    content: str
    tokens: list[tuple[int, float]]


@dataclass(frozen=True, slots=True)
class Final:
    """The complete, durable answer. ``tail`` is content that was held back while it could have been a tool call."""

    message: Message
    finish_reason: FinishReason
    usage: Usage
    tail: str = ""


class Capture:
    """Opens, answers and closes turns."""

    def __init__(
        self, config: Config, journal: Journal, engine: Engine, renderer: PromptRenderer, versions: ServingVersions
    ) -> None:
        self.config = config
        self.journal = journal
        self.engine = engine
        self.renderer = renderer
        self.versions = versions
        self._finishing: set[asyncio.Task[None]] = set()

    # -- opening ------------------------------------------------------------------------------------------------

    async def open_turn(self, request: ChatRequest, client: Client) -> OpenTurn:
        """Place, render and record a request. Raises ApiError, with nothing recorded unless the next state was."""
        version, pinned = await self.versions.resolve(request.model)
        limit = await self.engine.max_model_len()
        return await asyncio.to_thread(self._open, request, client, version, pinned, limit)

    def _open(self, request: ChatRequest, client: Client, version: int, pinned: bool, limit: int) -> OpenTurn:
        messages = for_model(request.messages)
        tools = request.offered_tools
        kind = turn_kind(client.turn_type, messages, request.limit)
        hashes = chain_hashes(messages)
        request_hash = _digest(hashes[-1], json.dumps(tools), request.model, kind)
        since = self.journal.clock() - self.config.sessions.retry_window_s
        same = [
            row
            for row in self.journal.same_request(client.key, request_hash, since)
            if client.session_id is None or row.session_id == client.session_id
        ]
        if client.is_retry or client.retry_key:
            for row in same:
                if row.answer and (row.retry_key == client.retry_key or client.is_retry) and _complete(row):
                    return self._replay(row, request, tools)
        if kind is TurnKind.SIDE:
            placement = Placement(client.session_id, None, None, messages, None, [])
        else:
            placement = self._place(messages, hashes, client)
        supersedes = None
        if same and kind is TurnKind.MAIN:
            sibling = same[0]
            # The same request again: a retry whose first answer was lost, or a regenerated answer. It takes the
            # place of the turn it repeats, but a first message alone says nothing of the session it belongs to.
            if client.session_id or client.is_retry or any(m["role"] == "assistant" for m in messages):
                supersedes = sibling.id
                placement = _beside(placement, sibling)
        turn_id = f"turn-{uuid.uuid4().hex}"
        session_id = placement.session_id or f"session-{uuid.uuid4().hex}"
        parent: Any = placement.parent
        prompt, extends = self._prompt(messages, tools, parent, placement, session_id)
        room = limit - len(prompt.ids)
        params = self._sampling(request, max(room, 1))
        known = len(prompt.ids) if not extends else parent.prompt_tokens + parent.response_tokens
        self.journal.begin_turn(
            NewTurn(
                id=turn_id,
                session_id=session_id,
                client=client.key,
                source=client.source,
                kind=kind,
                parent_id=parent.id if parent is not None else None,
                branch_of=placement.branch_of,
                extends_parent=extends,
                bridged=prompt.bridged,
                version=version,
                pinned=pinned,
                model=request.model,
                request_hash=request_hash,
                retry_key=client.retry_key,
                temperature=params.temperature,
                hint_at=prompt.hint_at,
                messages=placement.added if extends else messages,
                tools=tools,
                params=request.record(),
                prompt_ids=prompt.ids[known:] if extends else prompt.ids,
                prompt_tokens=len(prompt.ids),
                next_state=placement.next_state,
                answers=placement.answers,
                supersedes=supersedes,
            )
        )
        turn = OpenTurn(turn_id, session_id, version, request, tools, prompt, params, hashes[-1], client.session_done)
        if room < 1:
            self._finish(turn, FinishReason.ERROR)
            raise ApiError(
                400,
                f"the prompt has {len(prompt.ids)} tokens, the model's context is {limit}; shorten the conversation",
                param="messages",
                code="context_length_exceeded",
            )
        return turn

    def _place(self, messages: list[Message], hashes: list[str], client: Client) -> Placement:
        candidates = self.journal.turns_by_context(client.key, hashes[:-1], client.session_id)
        last = self.journal.last_main_turn(client.session_id) if client.session_id else None
        return place(
            messages,
            hashes,
            list(candidates),  # type: ignore[arg-type]  # rows have the columns of RecordedTurn
            explicit_session=client.session_id,
            last_in_session=last,  # type: ignore[arg-type]
            last_answer=unpack_json(last.answer) if last is not None and last.answer else None,
        )

    def _prompt(
        self,
        messages: list[Message],
        tools: list[dict[str, Any]] | None,
        parent: Any,
        placement: Placement,
        session_id: str,
    ) -> tuple[Prompt, bool]:
        """The prompt, bridged from its parent where that is exact, and whether it is stored as an extension."""
        if parent is not None and _bridgeable(parent, tools):
            prompt_ids, response_ids = self.journal.context_ids(parent)
            bridged = self.renderer.bridge(prompt_ids, response_ids, parent.hint_at, placement.added, tools)
            if bridged is not None:
                return bridged, parent.session_id == session_id
        return self.renderer.render(messages, tools), False

    def _sampling(self, request: ChatRequest, room: int) -> SamplingParams:
        return SamplingParams(
            max_tokens=min(request.limit or room, room),
            temperature=1.0 if request.temperature is None else request.temperature,
            top_p=1.0 if request.top_p is None else request.top_p,
            top_k=-1 if not request.top_k else request.top_k,
            seed=request.seed,
            stop=request.stops,
            stop_token_ids=tuple(self.renderer.stop_token_ids),
        )

    def _replay(self, row: Any, request: ChatRequest, tools: list[dict[str, Any]] | None) -> OpenTurn:
        usage = Usage(row.prompt_tokens, row.response_tokens)
        final = Final(unpack_json(row.answer), FinishReason(row.finish_reason), usage)
        params = self._sampling(request, 1)
        prompt = Prompt([], None, False)
        turn = OpenTurn(row.id, row.session_id, row.version, request, tools, prompt, params, "", False, replay=final)
        turn.response_ids = unpack_ids(row.response_ids)
        return turn

    # -- answering ----------------------------------------------------------------------------------------------

    async def stream(self, turn: OpenTurn) -> AsyncGenerator[Delta | Final, None]:
        """The answer as it is sampled, then the Final, which is yielded only once the turn is durable."""
        if turn.replay is not None:
            yield Delta(turn.replay.message.get("content") or "", [])
            yield turn.replay
            return
        splitter = _ContentSplitter(hold_tool_calls=turn.tools is not None)
        reason = FinishReason.ERROR
        finished = False
        try:
            async with self.versions.using(turn.version), aclosing(self._chunks(turn)) as chunks:
                async for chunk in chunks:
                    turn.response_ids += chunk.token_ids
                    if chunk.logprobs is None and chunk.token_ids:
                        turn.logprobs = None
                    elif turn.logprobs is not None and chunk.logprobs is not None:
                        turn.logprobs += chunk.logprobs
                    turn.text += chunk.text
                    turn.stop_string = turn.stop_string or chunk.stop_string
                    if chunk.finish_reason is not None:
                        reason = FinishReason.LENGTH if chunk.finish_reason == "length" else FinishReason.STOP
                    content = splitter.feed(chunk.text)
                    if content or chunk.token_ids:
                        yield Delta(content, list(zip(chunk.token_ids, chunk.logprobs or [], strict=False)))
            message, reason = _message(turn, reason)
            finished = True
            await asyncio.to_thread(self._finish, turn, reason, message)
            usage = Usage(len(turn.prompt.ids), len(turn.response_ids))
            yield Final(message, reason, usage, tail=splitter.rest(message.get("content") or ""))
        except (asyncio.CancelledError, GeneratorExit):
            if not finished:
                self._finish_later(turn, FinishReason.ABORT)
            raise
        except Exception:
            if not finished:
                self._finish_later(turn, FinishReason.ERROR)
            raise

    async def _chunks(self, turn: OpenTurn) -> AsyncGenerator[Chunk, None]:
        """The engine's chunks. An engine that was restarted before the first token is waited for and asked again."""
        deadline = time.monotonic() + ENGINE_RETURN_S
        again = False
        while True:
            try:
                model = await self.versions.ensure_loaded(turn.version, again=again)
                async with aclosing(self.engine.generate(model, turn.prompt.ids, turn.params)) as chunks:
                    async for chunk in chunks:
                        yield chunk
                return
            except (UnknownModel, EngineUnreachable) as e:
                if turn.response_ids or time.monotonic() > deadline or (again and isinstance(e, UnknownModel)):
                    raise
                again = True
                if isinstance(e, EngineUnreachable):
                    await asyncio.sleep(0.5)

    # -- closing ------------------------------------------------------------------------------------------------

    def _finish(self, turn: OpenTurn, reason: FinishReason, message: Message | None = None) -> None:
        message = message or {"role": "assistant", "content": turn.text}
        served = reason not in (FinishReason.ABORT, FinishReason.ERROR)
        self.journal.finish_turn(
            turn.id,
            Answer(
                message=message | ({"stop_string": turn.stop_string} if turn.stop_string else {}),
                context_hash=extend_hash(turn.context_hash, message) if served else None,
                finish_reason=reason,
                response_ids=turn.response_ids,
                logprobs=turn.logprobs,
            ),
        )
        if turn.session_done:
            self.journal.close_session(turn.session_id, "the client said it is done")

    def _finish_later(self, turn: OpenTurn, reason: FinishReason) -> None:
        """Record an answer that was cut short, although the task that served it is being cancelled."""

        async def finish() -> None:
            try:
                await asyncio.to_thread(self._finish, turn, reason)
            except Exception:
                log.exception("could not record the end of turn %s", turn.id)

        task = asyncio.get_running_loop().create_task(finish())
        self._finishing.add(task)
        task.add_done_callback(self._finishing.discard)

    async def drain(self) -> None:
        """Wait until every cut-short answer is recorded."""
        while self._finishing:
            await asyncio.wait(set(self._finishing), timeout=5)


class _ContentSplitter:
    """Lets content through as it comes, but holds back whatever may be the start of a tool call."""

    def __init__(self, hold_tool_calls: bool) -> None:
        self._hold = hold_tool_calls
        self._pending = ""
        self._sent = 0

    def feed(self, text: str) -> str:
        if not self._hold:
            self._sent += len(text)
            return text
        self._pending += text
        cut = self._pending.find(OPEN_TOOL_CALL)
        if cut < 0:
            cut = len(self._pending) - _partial_suffix(self._pending, OPEN_TOOL_CALL)
        ready, self._pending = self._pending[:cut], self._pending[cut:]
        self._sent += len(ready)
        return ready

    def rest(self, content: str) -> str:
        """What of the final content has not been sent yet."""
        return content[self._sent :]


def _partial_suffix(text: str, mark: str) -> int:
    """Length of the longest end of `text` that is a beginning of `mark`."""
    return next((n for n in range(min(len(mark) - 1, len(text)), 0, -1) if text.endswith(mark[:n])), 0)


def _message(turn: OpenTurn, reason: FinishReason) -> tuple[Message, FinishReason]:
    """The assistant message that the client gets, from the answer's text."""
    parsed = parse_text(turn.text, with_tools=turn.tools is not None)
    message: Message = {"role": "assistant", "content": parsed.content}
    calls = [call for call in parsed.tool_calls if call.status is ToolCallParseStatus.OK]
    if calls:
        message["tool_calls"] = [
            {
                "id": f"call_{turn.id[5:17]}_{i}",
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)},
            }
            for i, call in enumerate(calls)
        ]
        if reason is FinishReason.STOP:
            reason = FinishReason.TOOL_CALLS
    return message, reason


def _bridgeable(parent: Any, tools: list[dict[str, Any]] | None) -> bool:
    """Whether a prompt may go on from what the parent's engine sampled.

    Not after a stop string: the client never saw it, so the history it sends is another text. Not with other tools:
    they stand in the prompt.
    """
    if parent.response_ids is None or not parent.response_tokens:
        return False
    if "stop_string" in unpack_json(parent.answer):
        return False
    return (unpack_json(parent.tools) if parent.tools else None) == tools


def _beside(placement: Placement, sibling: Any) -> Placement:
    """A repeated request belongs into its sibling's session and answers nothing anew."""
    return Placement(sibling.session_id, None, placement.parent, placement.added, None, [])


def _complete(row: Any) -> bool:
    return row.finish_reason in (FinishReason.STOP, FinishReason.LENGTH, FinishReason.TOOL_CALLS)


def _digest(*parts: object) -> str:
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()
