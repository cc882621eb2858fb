"""What the HTTP thread hands to the compute thread, and what comes back. Plain data; no I/O and no tensors."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from turnwise.local_engine.model.attention import SeenPicture, SequencePiece
from turnwise.local_engine.model.kv import SequenceKV
from turnwise.local_engine.model.runner import Weights
from turnwise.local_engine.text import TextStream


class Finish(StrEnum):
    """vLLM's finish reasons."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


@dataclass(frozen=True, slots=True)
class RequestParams:
    """How to choose tokens. ``temperature`` 0 is greedy; ``top_k`` 0, ``top_p`` 1 and ``min_p`` 0 keep the whole
    vocabulary; penalties of 0, 0 and 1 change nothing. ``priority`` 0 is somebody's who waits, 1 nobody's."""

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    priority: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False

    @property
    def penalised(self) -> bool:
        return bool(self.frequency_penalty or self.presence_penalty) or self.repetition_penalty != 1.0


@dataclass(frozen=True, slots=True)
class Output:
    """What one step adds to one answer. ``text`` may lag behind ``token_ids`` (half characters, stop strings)."""

    token_ids: list[int]
    logprobs: list[float]
    text: str
    finish: Finish | None = None
    stop_reason: str | int | None = None
    cached_tokens: int = 0
    error: str | None = None


@dataclass(slots=True, eq=False)
class Request:
    """One completion on its way through the scheduler. Only the compute thread touches it after submission.

    ``tokens`` are prompt plus sampled ids; ``kv`` holds keys and values of a prefix of them, and is None while the
    request waits. ``keys`` are what beginnings are compared by: the tokens, but where pictures are seen; without any it
    is the same list. ``weights`` are pinned at submission: a swapped adapter does not change a request in flight;
    ``release`` unpins them, once, when the request has left the scheduler.
    """

    weights: Weights
    tokens: list[int]
    params: RequestParams
    text: TextStream
    deliver: Callable[[Output], None]
    release: Callable[[], None]
    rng: random.Random
    prompt_len: int
    kv: SequenceKV | None = None
    cached_tokens: int = 0
    cancelled: bool = False
    pictures: tuple[SeenPicture, ...] = ()
    keys: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.keys = self.keys or self.tokens

    def add(self, token: int) -> None:
        """A token was sampled."""
        self.tokens.append(token)
        if self.keys is not self.tokens:
            self.keys.append(token)

    def piece(self, start: int, end: int, sample: bool) -> SequencePiece:
        """Its tokens from ``start`` to ``end``, ready to be computed."""
        assert self.kv is not None
        seen = tuple(p for p in self.pictures if p.places[0] < end)
        return SequencePiece(self.kv, self.tokens[start:end], sample, self.keys[start:end], seen)
