"""What a gateway asks of an engine: token ids in, sampled ids and their log-probs out, adapters while it serves."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from turnwise.pictures.placed import ShownPicture

BEHIND_PEOPLE = 1
"""The priority of what nobody waits for. As vLLM has it, what has a lower number is first; a person's is 0."""
BASE_MODEL = "base"
"""The name of the model without an adapter."""


@dataclass(frozen=True, slots=True)
class SamplingSettings:
    """How to sample, as far as a client said it: what is None is left to the model's defaults, or to an upstream."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How an engine is to sample, with nothing left open.

    ``max_tokens`` counts response tokens; ``stop`` strings end the answer, cut from its text.

    ``structured`` is a JSON schema that the answer must follow, ``call`` the structural tag of a tool call that it must
    be (`engines.forced_calls`), ``grammar`` vLLM's own `structured_outputs`; each for engines that can
    (`engines.capabilities`). The penalties are vLLM's: the first two count what was answered, the last one the prompt
    too. ``min_p`` cuts what is less likely than so much of the likeliest token. ``priority`` is for engines that
    order what they have in hand.
    """

    max_tokens: int
    temperature: float
    top_p: float
    top_k: int
    seed: int | None
    stop: tuple[str, ...]
    stop_token_ids: tuple[int, ...]
    structured: dict[str, Any] | None = None
    call: dict[str, Any] | None = None
    grammar: dict[str, Any] | None = None
    min_p: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    priority: int = 0

    @property
    def penalised(self) -> bool:
        """Whether what was said before changes the distribution that is sampled from."""
        return bool(self.frequency_penalty or self.presence_penalty) or self.repetition_penalty != 1.0


def bent(params: SamplingParams) -> dict[str, float]:
    """Penalties and ``min_p`` in the words that engines share, where they change something."""
    neutral = {"min_p": 0.0, "frequency_penalty": 0.0, "presence_penalty": 0.0, "repetition_penalty": 1.0}
    return {name: value for name, none in neutral.items() if (value := getattr(params, name)) != none}


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some newly sampled tokens: ids [n], natural log-probs [n] at the sampling temperature (None: not given), text.

    The log-probs are of the distribution after the penalties, where there are any.
    ``finish_reason`` is set on the last chunk that has tokens ("stop" or "length"); ``stop_string`` when a stop string
    ended it. ``cached_tokens``, how much of the prompt was not computed anew, may follow in a chunk without tokens.
    """

    token_ids: list[int]
    logprobs: list[float] | None
    text: str
    finish_reason: str | None = None
    stop_string: str | None = None
    cached_tokens: int | None = None


def merged(chunks: Sequence[Chunk]) -> Chunk:
    """Consecutive chunks of one answer as one. Log-probs that one of them lacks are lacking."""
    if len(chunks) == 1:
        return chunks[0]
    known = all(c.logprobs is not None for c in chunks if c.token_ids)
    return Chunk(
        token_ids=[token for c in chunks for token in c.token_ids],
        logprobs=[value for c in chunks for value in c.logprobs or ()] if known else None,
        text="".join(c.text for c in chunks),
        finish_reason=next((c.finish_reason for c in chunks if c.finish_reason is not None), None),
        stop_string=next((c.stop_string for c in chunks if c.stop_string is not None), None),
        cached_tokens=next((c.cached_tokens for c in reversed(chunks) if c.cached_tokens is not None), None),
    )


class Engine(Protocol):
    """Takes token ids. `engines.vllm` serves for a vLLM server and for our local one, `engines.sglang` for SGLang, and
    `engines.replicas` for several of one kind. All errors are EngineError."""

    async def max_model_len(self) -> int:
        """Longest prompt plus answer, in tokens."""
        ...

    def generate(
        self,
        model: str,
        prompt_ids: list[int],
        params: SamplingParams,
        *,
        affinity: str = "",
        pictures: Sequence[ShownPicture] = (),
    ) -> AsyncGenerator[Chunk, None]:
        """Sample an answer. Closing the iterator early cancels the request in the engine.

        Requests of one ``affinity`` (a session) go to the same replica, whose prefix cache then holds their history.
        ``pictures`` are those that the prompt's placeholders show, for engines that are told them.
        """
        ...

    async def load_adapter(self, name: str, path: Path) -> None:
        """Make a PEFT directory servable under a name, without disturbing requests in flight."""
        ...

    async def unload_adapter(self, name: str) -> None:
        """Forget an adapter; requests in flight with it finish."""
        ...

    async def healthy(self) -> bool: ...

    async def close(self) -> None: ...
