"""Answers an open turn: the engine's chunks become parts of an answer, and the whole is recorded before its end leaves.

Whatever happens meanwhile, the turn is closed: as answered, as aborted when the client goes away, or as failed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field

from renderers.base import ToolCallParseStatus

from turnwise.engines.base import Chunk, Engine, SamplingParams
from turnwise.errors import EngineError, EngineUnreachable, JournalError, JournalFull, UnknownModel
from turnwise.gateway.errors import TOO_LONG, as_api_error
from turnwise.gateway.lineage.history import Lineage, hash_answer
from turnwise.gateway.turn.in_hand import InHand
from turnwise.gateway.turn.leaving import Leaving
from turnwise.gateway.turn.unrecorded import Unrecorded
from turnwise.gateway.versions import ServingVersions
from turnwise.gateway.wire.request import Again, Delta, Final, ModelRequest, Usage, call_id
from turnwise.journal import Answer, Journal
from turnwise.messages import answer_of, calls_of, text_of, with_calls, with_text
from turnwise.pictures.placed import ShownPicture
from turnwise.tokens.answer_parser import AnswerParser, AnswerParts
from turnwise.tokens.rendering import Prompt, PromptRenderer
from turnwise.types import UNANSWERED, FinishReason, Message, ToolCall

log = logging.getLogger(__name__)

MOST_BREAKS = 2
"""How often a whole answer may be broken off by the end of an engine before it fails."""

Close = Callable[[FinishReason, Message], Awaitable[None]]


@dataclass(slots=True)
class OpenTurn:
    """A turn under way. ``replay`` is the recorded answer when the request is a retry of an answered turn.

    ``used`` are the tokens of prompt and answer, where an upstream counted them.
    """

    id: str
    session_id: str
    version: int
    request: ModelRequest
    prompt: Prompt
    params: SamplingParams
    context_hash: str
    thread: str | None
    session_done: bool
    lineage: Lineage
    in_hand: InHand
    leaving: Leaving
    unrecorded: Unrecorded
    supersedes: str | None = None
    pictures: list[ShownPicture] = field(default_factory=list)
    replay: Final | None = None
    response_ids: list[int] = field(default_factory=list)
    logprobs: list[float] | None = field(default_factory=list)
    text: str = ""
    stop_string: str | None = None
    cached_tokens: int | None = None
    used: tuple[int, int] | None = None
    recorded: bool = True
    """False where the disk had no room for it, and it is answered all the same."""
    by_person: bool = True
    """Of a ``replay``: whether what is asked again is an agent's own work, and no housekeeping."""

    def forget_answer(self) -> None:
        self.response_ids, self.logprobs, self.text = [], [], ""
        self.stop_string = self.cached_tokens = None


class Closing:
    """Records how turns end."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self._finishing: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def closing(self, turn: OpenTurn) -> AsyncGenerator[Close, None]:
        """Gives the function that records the complete answer. Without its call the turn ends as aborted or failed."""
        closed = False

        async def close(reason: FinishReason, message: Message) -> None:
            nonlocal closed
            writing = self._finish(turn, reason, message)
            closed = True  # what is submitted is written, even if this task is cancelled now
            try:
                await asyncio.shield(writing)
            except JournalError:
                closed = False
                raise

        try:
            yield close
        except (asyncio.CancelledError, GeneratorExit):
            if not closed:
                self._finish_later(turn, FinishReason.INTERRUPTED if turn.leaving.over else FinishReason.ABORT)
            raise
        except Exception as e:
            if not closed:
                await self._fail(turn, too_long=as_api_error(e).code == TOO_LONG)
            raise

    def _finish(
        self, turn: OpenTurn, reason: FinishReason, message: Message | None = None, too_long: bool = False
    ) -> asyncio.Task[None]:
        """Submit the end of a turn to the journal; the task is done once it is durable."""
        if not turn.recorded:
            return asyncio.get_running_loop().create_task(asyncio.sleep(0))
        message = message or answer_of(turn.text)
        if turn.request.prefill:  # the answer as the client will have it in its history
            message = with_text(message, turn.request.prefill + text_of(message))
        served = reason not in UNANSWERED
        context, thread, alone = hash_answer(turn.context_hash, turn.thread, message) if served else (None, None, None)
        written = self.journal.turns.finish_soon(
            turn.id,
            Answer(
                message=message,
                stop_string=turn.stop_string,
                context_hash=context,
                thread_hash=thread,
                answer_hash=alone,
                finish_reason=reason,
                response_ids=turn.response_ids,
                logprobs=turn.logprobs,
                used=turn.used,
                too_long=too_long,
                supersedes=turn.supersedes,
            ),
        )

        turn.in_hand.take(turn.id)

        async def wait() -> None:
            try:
                await asyncio.wrap_future(written)
            except JournalFull as e:
                if not (served and turn.unrecorded.serve):
                    raise
                turn.unrecorded.note(turn.id, e)
                turn.recorded = False
                return
            finally:
                turn.in_hand.let_go(turn.id)
            if turn.session_done:
                await asyncio.to_thread(self.journal.sessions.close, turn.session_id, "the client said it is done")

        task = asyncio.get_running_loop().create_task(wait())
        self._finishing.add(task)
        task.add_done_callback(self._finishing.discard)
        return task

    def _finish_later(self, turn: OpenTurn, reason: FinishReason) -> None:
        """Record an answer that was cut short, although the task that served it is being cancelled."""

        def complain(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                log.error("could not record the end of turn %s: %s", turn.id, error)

        try:
            self._finish(turn, reason).add_done_callback(complain)
        except JournalError as e:
            log.error("could not record the end of turn %s: %s", turn.id, e)

    async def _fail(self, turn: OpenTurn, too_long: bool = False) -> None:
        """Record a failed answer before its client is told: a request that is sent again at once must find it."""
        try:
            await asyncio.shield(self._finish(turn, FinishReason.ERROR, too_long=too_long))
        except JournalError as e:
            log.error("could not record the end of turn %s: %s", turn.id, e)

    async def drain(self) -> None:
        """Wait until every cut-short answer is recorded."""
        while self._finishing:
            await asyncio.wait(set(self._finishing), timeout=5)


@dataclass(slots=True)
class _Reading:
    """An answer as far as it has been read."""

    parser: AnswerParser
    reason: FinishReason = FinishReason.ERROR


class Answering(Closing):
    """Answers and closes turns with an engine that takes token ids."""

    def __init__(self, journal: Journal, engine: Engine, renderer: PromptRenderer, versions: ServingVersions) -> None:
        super().__init__(journal)
        self.engine = engine
        self.renderer = renderer
        self.versions = versions

    async def stream(self, turn: OpenTurn) -> AsyncGenerator[Delta | Again | Final, None]:
        """The answer as it is sampled, then the Final, which is yielded only once the turn is durable.

        A whole answer that an engine's end breaks off begins again with the next engine: its client has seen nothing.
        """
        in_reasoning = self.renderer.ends_in_reasoning(turn.prompt.asked)
        reading = _Reading(self._parser(turn, in_reasoning))
        async with self.closing(turn) as close:
            async with (
                self.versions.using(turn.version),
                aclosing(self._sampled(turn, reading, in_reasoning)) as deltas,
            ):
                async for delta in deltas:
                    yield delta
            parser, reason = reading.parser, reading.reason
            last = parser.finish()
            if self.renderer.grammar.calls != "json":
                last.extend(await asyncio.to_thread(self._read_whole, turn, parser))
            message = with_call_ids(turn.id, parser.message)
            if calls_of(message) and reason is FinishReason.STOP:
                reason = FinishReason.TOOL_CALLS
            await close(reason, message)
            if last:
                yield Delta(last)
            reasoning = 0
            if parser.reasoning:
                reasoning = await asyncio.to_thread(self.renderer.reasoning_tokens, turn.response_ids, in_reasoning)
            usage = Usage(len(turn.prompt.ids), len(turn.response_ids), reasoning, cached_tokens=turn.cached_tokens)
            yield Final(message, reason, usage, turn.stop_string)

    async def _sampled(
        self, turn: OpenTurn, reading: _Reading, in_reasoning: bool
    ) -> AsyncGenerator[Delta | Again, None]:
        """What is sampled, read into `reading` on the way."""
        for left in reversed(range(MOST_BREAKS + 1)):
            try:
                async with aclosing(self._chunks(turn)) as chunks:
                    async for chunk in chunks:
                        reading.reason = _take(turn, chunk) or reading.reason
                        parts = reading.parser.feed(chunk.text)
                        if parts or chunk.token_ids:
                            yield Delta(parts, list(zip(chunk.token_ids, chunk.logprobs or [], strict=False)))
                return
            except EngineUnreachable:
                if turn.request.stream or not turn.response_ids or not left:
                    raise
            turn.forget_answer()
            reading.parser = self._parser(turn, in_reasoning)
            yield Again()

    def _parser(self, turn: OpenTurn, in_reasoning: bool) -> AnswerParser:
        tools = turn.request.tools
        names = frozenset(str(tool["function"]["name"]) for tool in tools or ())
        return AnswerParser(self.renderer.grammar, with_tools=tools is not None, in_reasoning=in_reasoning, names=names)

    def token_text(self, token_id: int) -> str:
        return self.renderer.decode([token_id])

    async def healthy(self) -> bool:
        return await self.engine.healthy()

    async def max_model_len(self) -> int:
        """Longest prompt plus answer, in tokens. An engine that is being restarted is waited for."""
        deadline = time.monotonic() + self.journal.store.config.server.engine_return_s
        while True:
            try:
                return await self.engine.max_model_len()
            except EngineUnreachable:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.5)

    async def _chunks(self, turn: OpenTurn) -> AsyncGenerator[Chunk, None]:
        """The engine's chunks. An engine that was restarted before the first token is waited for and asked again."""
        deadline = time.monotonic() + self.journal.store.config.server.engine_return_s
        again = False
        while True:
            try:
                model = await self.versions.ensure_loaded(turn.version, again=again)
                about = {"affinity": turn.session_id, "pictures": turn.pictures}
                answer = self.engine.generate(model, turn.prompt.ids, turn.params, **about)
                async with aclosing(answer) as chunks:
                    async for chunk in chunks:
                        yield chunk
                return
            except (UnknownModel, EngineUnreachable) as e:
                if turn.response_ids or time.monotonic() > deadline or (again and isinstance(e, UnknownModel)):
                    raise
                again = True
                if isinstance(e, EngineUnreachable):
                    await asyncio.sleep(0.5)

    def _read_whole(self, turn: OpenTurn, parser: AnswerParser) -> AnswerParts:
        """What the model's own renderer reads in the complete answer, beyond what has been given."""
        read = self.renderer.parse(turn.response_ids, turn.request.tools, turn.prompt.asked)
        calls = [
            (call.name or "", call.arguments or {})
            if call.status is ToolCallParseStatus.OK and turn.request.tools is not None
            else call.raw
            for call in read.tool_calls
        ]
        return parser.adopt(read.content, read.reasoning_content, calls)


def _take(turn: OpenTurn, chunk: Chunk) -> FinishReason | None:
    """Note a chunk on its turn; gives the reason when it is the last one. Raises EngineError for an unfit ending."""
    turn.response_ids += chunk.token_ids
    if chunk.logprobs is None and chunk.token_ids:
        turn.logprobs = None
    elif turn.logprobs is not None and chunk.logprobs is not None:
        turn.logprobs += chunk.logprobs
    turn.text += chunk.text
    turn.stop_string = turn.stop_string or chunk.stop_string
    if chunk.cached_tokens is not None:
        turn.cached_tokens = chunk.cached_tokens
    if chunk.finish_reason is None:
        return None
    if chunk.finish_reason not in ("stop", "length"):
        raise EngineError(f"the engine broke the answer off ({chunk.finish_reason})", 502)
    return FinishReason.LENGTH if chunk.finish_reason == "length" else FinishReason.STOP


def with_call_ids(turn_id: str, message: Message) -> Message:
    calls = calls_of(message)
    if not calls:
        return message
    return with_calls(
        message, [ToolCall(c.name, c.arguments, c.id or call_id(turn_id, i)) for i, c in enumerate(calls)]
    )
