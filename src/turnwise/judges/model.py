"""The model judge: m votes and m hint calls at once to any OpenAI-compatible endpoint, read strictly.

An endpoint that cannot be reached or gives nothing readable raises JudgeUnavailable, so that the turn is tried again
later. It never becomes a neutral verdict.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import openai

from turnwise.config import Config
from turnwise.errors import TurnwiseError
from turnwise.judges.child import Work, right_here
from turnwise.judges.parsing import majority, parse_vote, select_hint
from turnwise.judges.prompts import LEAST_ROOM, hint_prompt, score_prompt
from turnwise.judges.sizing import token_bound
from turnwise.judges.sources.by_source import by_source
from turnwise.messages import history_to_chat, storable, text_of
from turnwise.patterns import IGNORECASE, pattern
from turnwise.types import JudgeTask, Message, Proposal, Verdict

CALL_ATTEMPTS = 3
"""Tries of one call within one judging; longer outages are the worker's to wait for."""
MAX_PROPOSED = 300
"""Characters of a hint that goes to the review list."""
FIRST_BACKOFF_S = 0.5
NO_KEY = "none"
"""What is sent where no key is set: OpenAI's client wants one."""
_TOO_LONG = pattern(
    r"context.?length|maximum context|context window|too many tokens|too long|max_model_len", IGNORECASE
)


class JudgeUnavailable(TurnwiseError):
    """No valid vote could be had: the endpoint failed or its replies could not be read. The turn should be retried."""


class _PromptTooLong(JudgeUnavailable):
    """The endpoint says that the prompt does not fit its context."""


@dataclass(frozen=True, slots=True)
class _Reply:
    text: str
    prompt_tokens: int
    completion_tokens: int


class ModelJudge:
    """Votes of a language model on turns."""

    def __init__(
        self,
        client: openai.AsyncOpenAI,
        config: Config,
        *,
        work: Work = right_here,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        rng: random.Random | None = None,
    ) -> None:
        self._client = client
        self._judge = config.judge
        self._work = work
        self._sleep = sleep
        self._rng = rng or random.Random()
        self._context: int | None = None
        self._context_asked = False

    @classmethod
    def from_config(cls, config: Config, work: Work = right_here) -> ModelJudge:
        """A judge for ``judge.url``, or for the gateway of this installation when that is unset."""
        return cls(make_client(config), config, work=work)

    @property
    def who(self) -> str:
        return f"model {self._judge.model}"

    async def close(self) -> None:
        await self._client.close()

    async def judge(self, task: JudgeTask) -> Verdict:
        """The majority of m score votes and the best of m hints. Raises JudgeUnavailable without a valid vote.

        On a step of a rollout as many votes are cast as its stream wants, and no hint is asked for.

        A failed hint call costs the hint, not the verdict: the score stands without it.
        """
        started = time.monotonic()
        m, hints_wanted = task.votes or self._judge.votes, 0 if task.votes else self._judge.votes
        context = await self._max_model_len()
        results = await asyncio.gather(
            *(self._ask(score_prompt, task, self._judge.max_tokens, context) for _ in range(m)),
            *(self._ask(hint_prompt, task, self._judge.hint_max_tokens, context) for _ in range(hints_wanted)),
            return_exceptions=True,
        )
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, JudgeUnavailable):
                raise result
        replies = [r for r in results if isinstance(r, _Reply)]
        votes = [await self._work(parse_vote, r.text, False) for r in results[:m] if isinstance(r, _Reply)]
        hints = [await self._work(parse_vote, r.text, True) for r in results[m:] if isinstance(r, _Reply)]
        score = majority(v.score for v in votes)
        if score is None:
            failures = [str(r) for r in results[:m] if isinstance(r, JudgeUnavailable)]
            raise JudgeUnavailable(failures[0] if failures else f"none of {m} votes could be read")
        agreed, valid = sum(v.score == score for v in votes), sum(v.score is not None for v in votes)
        hint = select_hint([(v.score, v.hint) for v in hints])
        # Nobody who may give a hint said anything: what the model made of it waits for the person.
        proposed = Proposal("the judge model, from what tools returned", hint[:MAX_PROPOSED]) if hint else None
        # The same reading as the prompt's: what it called the person's words, and nothing beside it.
        trusted = bool((await self._work(by_source, task.answer, task.next_state, task.tools)).person)
        return Verdict(
            score=score,
            hint=hint if trusted else None,
            proposal=None if trusted else proposed,
            judge="model",
            reason=f"{agreed} of {m} votes",
            confidence=agreed / valid,
            votes=votes + hints,
            prompt_tokens=sum(r.prompt_tokens for r in replies),
            completion_tokens=sum(r.completion_tokens for r in replies),
            seconds=time.monotonic() - started,
        )

    async def _max_model_len(self) -> int | None:
        """How many tokens the judge model takes, where its endpoint says so, as vLLM and ours do; asked until told."""
        if self._context_asked:
            return self._context
        try:
            async with asyncio.timeout(self._judge.timeout_s):
                listed = getattr(await self._client.models.list(), "data", None) or []
        except openai.APIStatusError:  # it has no such list
            self._context_asked = True
        except (openai.APIError, TimeoutError, ValueError):
            pass  # the votes that follow meet the same fault and report it
        else:
            known = {m.id: m.max_model_len for m in listed if isinstance(getattr(m, "max_model_len", None), int)}
            self._context = known.get(self._judge.model, min(known.values(), default=None))
            self._context_asked = True
        return self._context

    async def _ask(
        self, prompt: Callable[..., list[Message]], task: JudgeTask, max_tokens: int, context: int | None
    ) -> _Reply:
        """One vote, with as much of the material as the model's context takes beside the reply."""
        room = None if context is None else context - max_tokens
        while room is None or room >= LEAST_ROOM:
            messages = await self._work(
                prompt,
                task.messages,
                task.answer,
                task.next_state,
                room=room,
                cut_off=task.cut_off,
                tools=task.tools,
            )
            try:
                return await self._call(messages, max_tokens)
            except _PromptTooLong:  # its tokenizer makes more of this text than we thought, or it never said how long
                room = sum(token_bound(text_of(message)) for message in messages) // 2
        raise JudgeUnavailable(
            f"the context of {self._judge.model} leaves {max(0, room)} tokens for the prompt beside {max_tokens} for "
            "the reply; lower judge.max_tokens and judge.hint_max_tokens, or judge with a model of a longer context"
        )

    async def _call(self, messages: list[Message], max_tokens: int) -> _Reply:
        """One completion, with bounded retries on rate limits, server faults, time-outs and broken connections."""
        fault: Exception | None = None
        for attempt in range(CALL_ATTEMPTS):
            if attempt:
                await self._sleep(FIRST_BACKOFF_S * 2 ** (attempt - 1) * (0.5 + self._rng.random()))
            try:
                async with asyncio.timeout(self._judge.timeout_s):
                    done = await self._client.chat.completions.create(
                        model=self._judge.model,
                        messages=history_to_chat(messages),  # pyright: ignore[reportArgumentType]  # OpenAI's shape
                        temperature=self._judge.temperature,
                        max_tokens=max_tokens,
                        # The gateway records a side turn and never trains on it.
                        extra_headers={"X-Turn-Type": "side"},
                    )
                return _reply(done)
            except (openai.APIConnectionError, openai.RateLimitError, openai.InternalServerError, TimeoutError) as e:
                fault = e
            except openai.APIError as e:
                if isinstance(e, openai.BadRequestError) and (
                    e.code == "context_length_exceeded" or _TOO_LONG.search(str(e))
                ):
                    raise _PromptTooLong(f"the judge model's endpoint refused the request: {self._said(e)}") from e
                raise JudgeUnavailable(f"the judge model's endpoint refused the request: {self._said(e)}") from e
            except ValueError as e:  # the body is not JSON
                fault = e
        raise JudgeUnavailable(
            f"the judge model did not answer in {CALL_ATTEMPTS} tries: {type(fault).__name__}: {self._said(fault)}"
        ) from fault

    def _said(self, fault: Exception | None) -> str:
        """A fault's own words without the key, which some endpoints repeat: they go into the log and the journal."""
        key = self._client.api_key
        return str(fault) if key in ("", NO_KEY) else str(fault).replace(key, "[the key]")


def _reply(done: object) -> _Reply:
    """The text and cost of a completion; ValueError when the endpoint sent something else with a status of 200."""
    choices = getattr(done, "choices", None)
    message = getattr(choices[0], "message", None) if choices else None
    text = getattr(message, "content", None)
    if not isinstance(text, str):
        raise ValueError("the endpoint's reply holds no message")
    usage = getattr(done, "usage", None)
    return _Reply(storable(text), getattr(usage, "prompt_tokens", 0) or 0, getattr(usage, "completion_tokens", 0) or 0)


def make_client(config: Config) -> openai.AsyncOpenAI:
    """An OpenAI client for the judge's endpoint; its own retries are off, as they are ours to bound."""
    url, key = config.judge.url, os.environ.get(config.judge.api_key_env, "")
    if url is None:
        host = f"[{config.server.host}]" if ":" in config.server.host else config.server.host
        url = f"http://{host}:{config.server.port}/v1"
        if not key and config.server.auth:
            try:
                key = config.token_path.read_text(encoding="utf-8").strip()
            except OSError as e:
                raise JudgeUnavailable(f"cannot read the gateway's token at {config.token_path}: {e}") from e
    return openai.AsyncOpenAI(base_url=url, api_key=key or NO_KEY, max_retries=0, timeout=config.judge.timeout_s)
