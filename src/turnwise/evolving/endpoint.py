"""A model that writes skills, at any OpenAI-compatible endpoint.

Its replies are read strictly; one that cannot be used is asked for once more, with what was wrong. An endpoint that
fails is no fault of the failures': they wait.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

import openai

from turnwise.config import Config
from turnwise.errors import TurnwiseError
from turnwise.evolving.asking import EvolverRequest
from turnwise.evolving.replies import MOST_OF_REPLY, BadReply, read_reply
from turnwise.messages import history_to_chat, saying, storable
from turnwise.types import Message, Skill

ATTEMPTS = 2
"""Replies that are asked for about one cluster."""
MOST_TOKENS = 1500
NO_KEY = "none"
"""What is sent where no key is set: OpenAI's client wants one."""


class WriterUnavailable(TurnwiseError):
    """The endpoint failed. The failures wait until it answers again."""


class SkillWriter:
    """The evolver's model."""

    def __init__(self, config: Config) -> None:
        skills = config.skills
        key = os.environ.get(skills.evolver_api_key_env, "").strip()
        self._model, self._timeout_s, self._key = skills.evolver_model, skills.evolver_timeout_s, key
        self._client = openai.AsyncOpenAI(
            base_url=skills.evolver_url, api_key=key or NO_KEY, max_retries=0, timeout=self._timeout_s
        )

    @property
    def who(self) -> str:
        return f"model {self._model}"

    async def close(self) -> None:
        await self._client.close()

    async def write(self, request: EvolverRequest) -> list[Skill]:
        """Skills for the failures of a request. Raises BadReply after ATTEMPTS replies, and WriterUnavailable."""
        messages = request.messages
        for attempt in range(1, ATTEMPTS + 1):
            text = await self._ask(messages)
            try:
                return read_reply(text, request.said)
            except BadReply as e:
                if attempt == ATTEMPTS:
                    raise
                again = saying("user", f"That reply cannot be used: {e}. Reply again, with the JSON object alone.")
                messages = [*request.messages, saying("assistant", storable(text[:MOST_OF_REPLY])), again]
        raise AssertionError  # the last attempt raises

    async def _ask(self, messages: Sequence[Message]) -> str:
        try:
            async with asyncio.timeout(self._timeout_s):
                done = await self._client.chat.completions.create(
                    model=self._model,
                    messages=history_to_chat(list(messages)),  # pyright: ignore[reportArgumentType]  # OpenAI's shape
                    temperature=0.2,
                    max_tokens=MOST_TOKENS,
                    extra_headers={"X-Turn-Type": "side"},  # where it is a gateway: recorded, and never learned from
                )
        except (openai.BadRequestError, openai.UnprocessableEntityError) as e:
            raise BadReply(f"the endpoint refused the request: {self._without_key(e)}") from e
        except (openai.APIError, TimeoutError, ValueError) as e:
            said = self._without_key(e)
            raise WriterUnavailable(f"the evolver's endpoint did not answer: {type(e).__name__}: {said}") from e
        choices = getattr(done, "choices", None)
        text = getattr(getattr(choices[0], "message", None), "content", None) if choices else None
        if not isinstance(text, str):
            raise WriterUnavailable("the evolver's endpoint sent something that holds no message")
        return text

    def _without_key(self, e: Exception) -> str:
        return (str(e).replace(self._key, "[the key]") if self._key else str(e))[:300]
