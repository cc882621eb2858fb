"""What is computed in the pauses between answers: pooled hidden states of the base model, log-probs of given tokens.

A job runs in pieces of a few tokens on the compute thread, one job at a time, with keys and values of its own. While
answers are being computed it gets a small piece every few steps, so that nobody waits long for it; it may wait for
them. Adapters have no part in it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import torch

from turnwise.errors import EngineError
from turnwise.local_engine.model.attention import Pack, PassLeft, SequencePiece
from turnwise.local_engine.model.kv import SequenceKV, rounded
from turnwise.local_engine.model.runner import Runner, Weights

MAX_TOKENS = 2048
"""Tokens of one job."""
MAX_WAITING = 32
PIECE = 64
"""Tokens of a job computed at once beside answers; less than half of a piece of a prompt."""
PIECE_ALONE = 256
EVERY = 4
"""Steps of the answers between two pieces of a job."""

Rows = list[list[float]]
Deliver = Callable[[Rows | str], None]
"""Takes the vectors, or what went wrong, on the compute thread."""
Leave = Callable[[], bool]
"""Whether somebody came since the piece was begun who waits for an answer."""


class PauseJob(Protocol):
    """What the queue asks of a job."""

    deliver: Deliver
    cancelled: bool

    def advance(self, runner: Runner, size: int, leave: Leave) -> Rows | None:
        """Compute the next piece of at most ``size`` tokens; gives the result once the last token is reached.

        Raises PassLeft where ``leave`` says so on the way: the piece is then still to do."""
        ...


@dataclass(slots=True, eq=False)
class PoolingJob:
    """``tokens`` and where the states are taken: behind so many blocks, for each of ``layers``: the last token's, then
    each span's mean.

    ``weights`` are the base's. ``spans`` are (begin, end) pairs. ``sums`` [L, S, H] are what the spans came to so far.
    """

    weights: Weights
    tokens: list[int]
    layers: list[int]
    spans: list[tuple[int, int]]
    deliver: Deliver
    cancelled: bool = False
    kv: SequenceKV | None = None
    sums: torch.Tensor | None = None

    def advance(self, runner: Runner, size: int, leave: Leave) -> Rows | None:
        """Layer after layer: the last token's vector, then each span's mean."""
        pack, start, end = _next_piece(self, runner, size, leave)
        states = runner.hidden(self.weights.merged, pack, self.layers)
        pack.commit()
        if self.sums is None:
            self.sums = torch.zeros(len(self.layers), len(self.spans), states[0].shape[1])
        for i, (first, last) in enumerate(self.spans):
            part = slice(max(first - start, 0), max(min(last, end) - start, 0))
            self.sums[:, i] += torch.stack([x[part].sum(0) for x in states])
        if end < len(self.tokens):
            return None
        lengths = torch.tensor([last - first for first, last in self.spans])
        means = self.sums / lengths[:, None]
        return [row for x, mean in zip(states, means, strict=True) for row in [x[-1].tolist(), *mean.tolist()]]


@dataclass(slots=True, eq=False)
class LogprobJob:
    """``tokens``: the log-prob of each of them but the first is wanted, at temperature 1. ``found`` are those so far.

    ``weights`` are the base's.
    """

    weights: Weights
    tokens: list[int]
    deliver: Deliver
    cancelled: bool = False
    kv: SequenceKV | None = None
    found: list[float] = field(default_factory=list)

    def advance(self, runner: Runner, size: int, leave: Leave) -> Rows | None:
        """One row: a log-prob for each token from the second one on."""
        pack, start, end = _next_piece(self, runner, min(size, PIECE), leave)  # logits take half a megabyte a token
        pack.last = torch.arange(end - start)  # those behind every token
        logits = runner.forward(self.weights.merged, pack).float()
        pack.commit()
        after = torch.tensor(self.tokens[start + 1 : end + 1])
        kept = logits[: len(after)]
        self.found += (kept.gather(1, after[:, None])[:, 0] - kept.logsumexp(-1)).tolist()
        return None if end < len(self.tokens) else [self.found]


def _next_piece(job: PoolingJob | LogprobJob, runner: Runner, size: int, leave: Leave) -> tuple[Pack, int, int]:
    """The next tokens of a job, ready to be computed, and where in it they begin and end."""
    if job.kv is None:
        job.kv = SequenceKV(runner.kv_shape, rounded(len(job.tokens)))
    start = len(job.kv.ids)
    end = min(start + size, len(job.tokens))
    return Pack([SequencePiece(job.kv, job.tokens[start:end], sample=True)], runner.heads, leave), start, end


class PoolingQueue:
    """Jobs in their order. ``add`` may be called from any thread under the scheduler's lock; the rest is the compute
    thread's."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._jobs: deque[PauseJob] = deque()
        self._steps = 0

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, job: PauseJob) -> None:
        """Raises EngineError 429 when too many wait."""
        if len(self._jobs) >= MAX_WAITING:
            raise EngineError(f"{MAX_WAITING} pooling requests wait already; try again later", 429)
        self._jobs.append(job)

    def abort(self) -> None:
        """Let everybody know that the engine stops."""
        while self._jobs:
            self._jobs.popleft().deliver("the engine is stopping")

    def advance(self, answering: bool, leave: Leave = lambda: False) -> None:
        """Compute one piece of the first job, if it is due. ``answering``: answers are being computed as well; who
        comes meanwhile does not wait for its end."""
        while self._jobs and self._jobs[0].cancelled:
            self._jobs.popleft()
        self._steps += 1
        if not self._jobs or (answering and self._steps % EVERY):
            return
        job = self._jobs[0]
        try:
            done = job.advance(self._runner, PIECE if answering else PIECE_ALONE, leave)
        except PassLeft:
            return
        except Exception as e:  # what one job asked for must not end the engine
            self._jobs.popleft()
            job.deliver(f"{type(e).__name__}: {e}")
            return
        if done is not None:
            self._jobs.popleft()
            job.deliver(done)
