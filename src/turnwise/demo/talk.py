"""What the demo says to a server over HTTP: conversations of a person, and held-out questions. Any client could do it.

A conversation is a session of its own that ends with the person's reaction. Held-out questions are marked as side
turns, which turnwise serves and never trains on.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx
import openai

from turnwise.demo import simulator
from turnwise.demo.personas import Persona
from turnwise.demo.problems import Problem
from turnwise.demo.server import Server
from turnwise.errors import TurnwiseError

T = TypeVar("T")

TEMPERATURE = 0.7
REQUEST_LIMIT_S = 300.0
CLOSING_TOKENS = 16
"""Length of the answer to a person's last word, which nobody reads."""


@dataclass(frozen=True, slots=True)
class DemoAnswer:
    """One answer. ``ended``: the model ended it itself; ``version``: the policy version stamped on it."""

    problem: Problem
    prompt: str
    text: str
    ended: bool
    version: str


@dataclass(slots=True)
class Conversation:
    """A played conversation: the messages said, the first answer, and whether the person got what they wanted."""

    first: DemoAnswer
    messages: list[dict[str, str]]
    replies: list[simulator.Reply]


@dataclass(slots=True)
class Failures:
    """Requests that did not get an answer. The demo counts them and goes on; the report says so."""

    count: int = 0
    reasons: list[str] = field(default_factory=list)

    def add(self, error: Exception) -> None:
        self.count += 1
        if len(self.reasons) < 10:
            self.reasons.append(f"{type(error).__name__}: {error}"[:300])


@dataclass(frozen=True, slots=True)
class Writer:
    """A model that writes the person's replies, at any OpenAI-compatible endpoint."""

    client: openai.AsyncOpenAI
    model: str


class Talk:
    """A client of one server for one persona. Use as an async context manager."""

    def __init__(self, server: Server, persona: Persona, *, max_tokens: int, writer: Writer | None = None) -> None:
        self.persona = persona
        self.failures = Failures()
        self._max_tokens = max_tokens
        self._writer = writer
        # A retried request would hide a failed one, and the demo promises to count them.
        self._http = httpx.AsyncClient(
            base_url=server.url, headers={"Authorization": f"Bearer {server.person_token}"}, timeout=REQUEST_LIMIT_S
        )
        self._openai = openai.AsyncOpenAI(
            base_url=f"{server.url}/v1", api_key=server.token, max_retries=0, timeout=REQUEST_LIMIT_S
        )

    async def __aenter__(self) -> Talk:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._openai.close()
        await self._http.aclose()

    async def status(self) -> dict[str, Any]:
        """The server's account of itself (`GET /v1/status`)."""
        response = await self._http.get("/v1/status")
        response.raise_for_status()
        return response.json()

    async def ask(
        self, problem: Problem, *, session: str, seed: int, model: str = "turnwise", wish: str | None = None
    ) -> DemoAnswer | None:
        """One held-out question, as a side turn; ``wish`` is written below it. None when the request failed."""
        prompt = simulator.opening(self.persona, problem, random.Random(f"{problem.id}/{seed}"))
        content = f"{prompt}\n\n{wish}" if wish else prompt
        messages = [{"role": "user", "content": content}]
        answered = await self._complete(messages, session, seed, model=model, side=True)
        return DemoAnswer(problem, prompt, *answered) if answered else None

    async def converse(self, problem: Problem, *, session: str, seed: int) -> Conversation | None:
        """Play one conversation about ``problem``: question, answer, reply, perhaps a second try, last word, close.

        None when a request failed; the session is closed all the same.
        """
        rng = random.Random(f"{session}/{seed}")
        prompt = simulator.opening(self.persona, problem, rng)
        messages = [{"role": "user", "content": prompt}]
        conversation: Conversation | None = None
        try:
            for attempt in range(2):
                answered = await self._complete(messages, session, seed)
                if answered is None:
                    return None
                text = answered[0]
                messages.append({"role": "assistant", "content": text})
                reply = simulator.reply(self.persona, problem, text, rng, last=attempt > 0)
                if self._writer:
                    reply = await self._written(problem, text, reply)
                messages.append({"role": "user", "content": reply.text})
                if conversation is None:
                    conversation = Conversation(DemoAnswer(problem, prompt, *answered), messages, [])
                conversation.replies.append(reply)
                if reply.satisfied:
                    break
            # The last word is the next state of the answer before it, so it has to be sent.
            last = await self._complete(messages, session, seed, max_tokens=CLOSING_TOKENS)
            return conversation if last else None
        finally:
            await self._close(session)

    async def _complete(
        self,
        messages: Sequence[dict[str, str]],
        session: str,
        seed: int,
        *,
        model: str = "turnwise",
        side: bool = False,
        max_tokens: int | None = None,
    ) -> tuple[str, bool, str] | None:
        headers = {"X-Session-Id": session, "X-Turn-Type": "side" if side else "main"}
        try:
            raw = await self._openai.chat.completions.with_raw_response.create(
                model=model,
                messages=list(messages),  # pyright: ignore[reportArgumentType]
                temperature=TEMPERATURE,
                max_tokens=max_tokens or self._max_tokens,
                seed=seed,
                extra_headers=headers,
            )
            choice = raw.parse().choices[0]
        except openai.OpenAIError as e:
            self.failures.add(e)
            return None
        return choice.message.content or "", choice.finish_reason == "stop", raw.headers.get("x-turnwise-version", "")

    async def _close(self, session: str) -> None:
        try:
            (await self._http.post(f"/v1/sessions/{session}/close")).raise_for_status()
        except httpx.HTTPError as e:
            self.failures.add(e)

    async def _written(self, problem: Problem, answer: str, plan: simulator.Reply) -> simulator.Reply:
        assert self._writer
        try:
            return await simulator.written_reply(
                self._writer.client, self._writer.model, self.persona, problem, answer, plan
            )
        except openai.OpenAIError as e:
            raise TurnwiseError(f"the simulator's model {self._writer.model} failed: {e}") from e


async def at_once(
    jobs: Sequence[Callable[[], Awaitable[T]]], limit: int, done: Callable[[T], None] = lambda result: None
) -> list[T]:
    """Run ``jobs``, at most ``limit`` together; results in the order of the jobs. ``done`` is told each as it comes."""
    gate = asyncio.Semaphore(limit)

    async def run(job: Callable[[], Awaitable[T]]) -> T:
        async with gate:
            result = await job()
        done(result)
        return result

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(run(job)) for job in jobs]
    except* TurnwiseError as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]
