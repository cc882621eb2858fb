"""Texts as vectors by an embedding model: any endpoint that speaks OpenAI's `POST /embeddings`.

A turn waits for it, so the wait is short, what was asked once is remembered, and an endpoint that fails is left alone
for a while.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty, Queue
from threading import Lock, Thread
from typing import Protocol

import numpy as np
import openai

from turnwise.config.skills import SkillsConfig
from turnwise.errors import ConfigError, SkillError
from turnwise.skills.vectors import Vectors, word_vectors

AT_ONCE = 64
"""Texts in one call."""
REMEMBERED = 2048
"""Texts whose vectors are kept."""
LEFT_ALONE_S = 30.0
"""How long an endpoint that failed is not asked again."""
THREAD = "embedding"
NO_KEY = "none"
"""What is sent where no key is set: OpenAI's client wants one."""


class Embedder(Protocol):
    """What makes vectors of texts."""

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Texts [N] as vectors of length 1 [N, D]. Raises SkillError."""
        ...


class EmbeddingEndpoint:
    """The vectors of an endpoint's model; safe from any thread."""

    def __init__(
        self, client: openai.OpenAI, model: str, timeout_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = client
        self._timeout_s = timeout_s
        self._model = model
        self._clock = clock
        self._known: OrderedDict[str, Vectors] = OrderedDict()
        self._lock = Lock()
        self._rests_until = -LEFT_ALONE_S

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Texts [N] as vectors of length 1 [N, D]. Raises SkillError where the endpoint fails, or failed just now."""
        with self._lock:
            found = {text: self._known[text] for text in texts if text in self._known}
        missing = [text for text in dict.fromkeys(texts) if text not in found]
        for at in range(0, len(missing), AT_ONCE):
            some = missing[at : at + AT_ONCE]
            found |= dict(zip(some, self._asked(some), strict=True))
        rows = [found[text] for text in texts]
        if len({row.shape for row in rows}) > 1:
            raise SkillError(f"the embedding model {self._model} gives vectors of several lengths")
        with self._lock:
            self._known |= found
            while len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        return np.stack(rows) if rows else np.zeros((0, 0), dtype=np.float32)

    def _asked(self, texts: Sequence[str]) -> list[Vectors]:
        if self._clock() < self._rests_until:
            raise SkillError("the embedding endpoint failed a moment ago; it is asked again soon")
        try:
            rows = within(partial(self._call, self._client, list(texts)), self._timeout_s)
        except TimeoutError as e:
            self._rests_until = self._clock() + LEFT_ALONE_S
            self._leave()
            raise SkillError(f"the embedding endpoint {self._client.base_url} gave no vectors: {e}") from e
        except (openai.OpenAIError, AttributeError, TypeError, ValueError, RecursionError) as e:
            self._rests_until = self._clock() + LEFT_ALONE_S
            raise SkillError(f"the embedding endpoint {self._client.base_url} gave no vectors: {e}") from e
        if len(rows) != len(texts):
            self._rests_until = self._clock() + LEFT_ALONE_S
            raise SkillError(f"the embedding endpoint gave {len(rows)} vectors for {len(texts)} texts")
        return rows

    def _leave(self) -> None:
        """Close the connections of a request that nobody waits for any more: its thread ends at its next read, which
        has the same limit."""
        left, self._client = self._client, self._client.copy(http_client=openai.DefaultHttpxClient())
        left.close()

    def _call(self, client: openai.OpenAI, texts: list[str]) -> list[Vectors]:
        answer = client.embeddings.create(model=self._model, input=texts, encoding_format="float")
        return [_unit(one.embedding) for one in sorted(answer.data, key=lambda one: one.index)]


def within(call: Callable[[], list[Vectors]], seconds: float) -> list[Vectors]:
    """What the call gives. Raises TimeoutError when that takes longer: a client's own limit counts each read anew, so
    that an endpoint which sends a byte a second would never reach it."""
    done: Queue[list[Vectors] | Exception] = Queue(1)

    def work() -> None:
        try:
            done.put(call())
        except Exception as e:
            done.put(e)

    Thread(target=work, name=THREAD, daemon=True).start()
    try:
        found = done.get(timeout=seconds)
    except Empty:
        raise TimeoutError(f"no answer within {seconds:g} s") from None
    if isinstance(found, Exception):
        raise found
    return found


def _unit(values: Sequence[float]) -> Vectors:
    row = np.asarray(values, dtype=np.float32)
    if row.ndim != 1 or not len(row) or not np.isfinite(row).all():
        raise ValueError("a vector is empty or has values that are no numbers")
    return row / max(float(np.linalg.norm(row)), 1e-9)


def embedder(settings: SkillsConfig) -> Embedder:
    """What the configuration asks for. Raises SkillError and ConfigError."""
    if settings.embedding_url is None:
        return word_vectors()
    if not settings.embedding_model:
        raise ConfigError("skills.embedding_url needs skills.embedding_model: the model's name at that endpoint")
    key = os.environ.get(settings.embedding_api_key_env) or NO_KEY
    client = openai.OpenAI(
        base_url=settings.embedding_url, api_key=key, timeout=settings.embedding_timeout_s, max_retries=0
    )
    return EmbeddingEndpoint(client, settings.embedding_model, settings.embedding_timeout_s)
