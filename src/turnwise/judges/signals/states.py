"""Asks the engine that serves anyway for hidden states of the base model: the local engine's ``POST /pooling``.

Other engines have no such route: then the head over words judges, which is said once. An engine that is away for the
moment is none of a turn's faults.
"""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np

from turnwise.capabilities import CAPABILITIES
from turnwise.config import Config
from turnwise.engines.choose import LOCAL_ENGINE_KEY
from turnwise.engines.http import bearer, engine_client, error_message, key_from, send
from turnwise.errors import EngineError, EngineUnreachable, TurnwiseError
from turnwise.judges.signals.head import Head, Opinion, Vector, head_for, tokenizer_digest, words_head
from turnwise.judges.signals.prompt import PromptMaker, Question
from turnwise.judges.signals.reading import Reading
from turnwise.models import resolve_model

log = logging.getLogger(__name__)

STALL_S = 90.0
"""Longest wait for states; the engine gives up after 60 seconds of its own."""


class StatesUnavailable(TurnwiseError):
    """The engine gives no hidden states now: the turn should wait for it, and it is no try of the turn's."""


class ReplyJudge:
    """Opinions on what a person said. ``heads``: which one judges is chosen at the first turn."""

    def __init__(self, config: Config | None = None, engine_url: str | None = None) -> None:
        self._url = engine_url
        self._folder: Path | None = None
        self._why: str | None = None
        """Why no engine is asked, where none is."""
        if config is not None and not CAPABILITIES[config.engine.kind].pooling:
            self._why = f'engine.kind = "{config.engine.kind}" gives no hidden states'
        elif config is None or engine_url is None:
            self._why = "no engine was named"
        elif (folder := model_folder(config)) is None:
            self._why = "the model is no local folder"
        else:
            self._folder = folder
        self._client: httpx.AsyncClient | None = None
        self._prompts: PromptMaker | None = None
        self._head: Head | None = None
        self._choosing = asyncio.Lock()

    @property
    def who(self) -> str | None:
        """Which head judges, for `turnwise status`; None before the first turn."""
        if self._head is None:
            return None
        return f"the words alone ({self._why})" if self._why else f"hidden states of {self._head.name}"

    async def opinion(self, reading: Reading) -> Opinion:
        """Raises StatesUnavailable where the engine has no answer now."""
        async with self._choosing:
            if self._head is None:
                self._head = await self._choose()
                log.info("what a person says is judged by %s", self.who)
        if self._why or self._prompts is None:
            return self._head.opinion_of_words(reading.sentences)
        prompt = await asyncio.to_thread(self._prompts.make, reading)
        found = self._head.opinion(await self.ask(prompt, self._head.layers))
        every = range(len(reading.sentences))
        directive, own = (dict(zip(prompt.sentences, chances, strict=True)) for chances in (found.directive, found.own))
        return replace(found, directive=[directive.get(i, 0.0) for i in every], own=[own.get(i, 0.0) for i in every])

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    async def _choose(self) -> Head:
        if self._why is not None:
            return words_head()
        assert self._folder is not None
        path = self._folder / "tokenizer.json"
        try:
            self._prompts = await asyncio.to_thread(PromptMaker, str(path))
            fitting = head_for(await asyncio.to_thread(tokenizer_digest, path))
        except Exception as e:  # the library has no kind of its own for a file it cannot read
            self._why = f"{path} cannot be read: {e}"
            return words_head()
        for head in fitting:
            try:
                found = await self.ask(Question(head.probe, [(0, len(head.probe))], []), head.layers)
            except EngineError:
                continue  # a model with fewer layers refuses the question
            if head.fits(found):
                return head
        self._why = f"no head was fitted for {self._folder.name}; see docs/judge.md"
        return words_head()

    async def ask(self, prompt: Question, layers: list[int]) -> Vector:
        """[L, 1 + S, H]. Raises StatesUnavailable, and EngineError for a question that the engine refuses."""
        if self._client is None:
            assert self._url is not None
            self._client = engine_client(self._url, STALL_S, bearer(key_from(LOCAL_ENGINE_KEY)))
        body = {"model": "base", "input": prompt.ids, "layers": layers, "spans": prompt.spans}
        try:
            answer = await send(self._client, "POST", "/pooling", body)
        except EngineUnreachable as e:
            raise StatesUnavailable(f"the engine gives no hidden states now: {e}") from e
        except EngineError as e:
            raise StatesUnavailable(f"the engine gives no hidden states now: {e}") from e
        if answer.status_code != 200:
            words = error_message(answer)
            if answer.status_code in (400, 404, 405, 422):
                raise EngineError(f"the engine refuses to give hidden states: {words}", answer.status_code)
            raise StatesUnavailable(f"the engine gives no hidden states now: {words}")
        try:
            rows = np.asarray(answer.json()["data"][0]["data"], np.float32)
            return rows.reshape(len(layers), 1 + len(prompt.spans), -1)
        except (KeyError, IndexError, TypeError, ValueError, json.JSONDecodeError) as e:
            raise StatesUnavailable(f"the engine's hidden states cannot be read: {e}") from e


def model_folder(config: Config) -> Path | None:
    """Where the served model lies; None for one that only a hub knows."""
    found = resolve_model(config.model.path)
    return found if isinstance(found, Path) else None


def head_name(config: Config) -> str | None:
    """The model whose head would judge with this configuration, as far as that shows without asking the engine."""
    if not CAPABILITIES[config.engine.kind].pooling:
        return None
    try:
        folder = model_folder(config)
        fitting = head_for(tokenizer_digest(folder / "tokenizer.json")) if folder is not None else []
    except (OSError, TurnwiseError):
        return None
    return fitting[0].name if fitting else None
