"""The compute thread: requests join and leave the running batch between two steps.

A step runs every running request once: one new token for those that decode, a chunk of the prompt for those that do
not yet, so that a long prompt never stalls the others. Requests of one set of weights share a forward pass. What nobody
waits for (`priority` 1) stands back: while somebody's answer is made it has one step of `BEHIND`, it gives up its place
for one that waits, and a step that is all its own is left when somebody comes. The invariants: a request holds a KV
buffer exactly while it runs; ``kv.ids`` is always a proper prefix of its tokens; weights are read by the thread but
never changed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence

import torch

from turnwise.errors import EngineError
from turnwise.local_engine.model.attention import Pack, PassLeft, SequencePiece
from turnwise.local_engine.model.kv import KVStore
from turnwise.local_engine.model.runner import Runner, Weights
from turnwise.local_engine.penalties import penalised
from turnwise.local_engine.pooling import PauseJob, PoolingQueue
from turnwise.local_engine.requests import Finish, Output, Request
from turnwise.local_engine.sampling import sample
from turnwise.local_engine.threads import ThreadChoice
from turnwise.loops.lifeline import BEAT_S, beat
from turnwise.loops.memory import give_back

log = logging.getLogger(__name__)

CHUNK = 128
"""Prompt tokens computed in a step beside decoding requests: about two decode steps' worth of time on two cores."""

CHUNK_ALONE = 512
"""The same when nothing decodes; small enough that a cancelled prompt frees its slot soon. Prompts that nobody waits
for are read by `CHUNK` all the same: who asks meanwhile waits for the end of the step."""

BEHIND = 16
"""While somebody waits for an answer, those that nobody waits for are part of each so-many-th step: they are slow, and
never without a token for as long as the gateway takes for a stall."""


IDLE_BEATS = 5
"""Beats of the lifeline without a request, behind which freed memory is given back."""


class Scheduler:
    """``submit`` and ``cancel`` may be called from any thread; outputs are delivered from the compute thread.

    ``threads``: the most that compute one step.
    """

    def __init__(
        self,
        runner: Runner,
        *,
        eos_ids: frozenset[int],
        max_num_seqs: int,
        max_queue: int,
        max_model_len: int,
        kv_bytes: int,
        threads: int = 1,
    ) -> None:
        self._runner = runner
        self._pooling = PoolingQueue(runner)
        self._eos_ids = eos_ids
        self._max_num_seqs = max_num_seqs
        self._max_queue = max_queue
        self._max_model_len = max_model_len
        self._store = KVStore(runner.kv_shape, kv_bytes)
        self._most_threads, self._threads = threads, ThreadChoice(threads)
        self._idle = 0  # beats since there was something to do
        self._freed = False  # whether so much was freed that it is to be given back
        self._wake = threading.Condition()
        # Guarded by _wake:
        self._waiting: deque[Request] = deque()
        self._gone: list[Weights] = []
        self._abort_at: float | None = None
        self._steps = 0
        self._came = 0  # requests that somebody waits for, so far; the compute thread reads it without the lock
        self._admitted = 0  # how many had come when requests were last admitted
        self._running: list[Request] = []  # changed by the compute thread alone, which reads it freely
        self._thread = threading.Thread(target=self._loop, name="compute", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def load(self) -> int:
        """Requests running or waiting."""
        with self._wake:
            return len(self._running) + len(self._waiting)

    def submit(self, request: Request) -> None:
        """Queue a request. Raises EngineError 429 when the queue is full, 503 when the engine is stopping."""
        with self._wake:
            if self._abort_at is not None:
                raise EngineError("the engine is stopping", 503)
            free = self._max_num_seqs - len(self._running)
            ahead = sum(1 for each in self._waiting if each.params.priority <= request.params.priority)
            if ahead >= self._max_queue + max(free, 0):
                raise EngineError(f"the queue is full ({len(self._waiting)} requests wait); try again later", 429)
            self._waiting.append(request)
            self._came += request.params.priority <= 0
            self._wake.notify()

    def pool(self, job: PauseJob) -> None:
        """Queue a job behind the answers. Raises EngineError 429 when too many wait, 503 when stopping."""
        with self._wake:
            if self._abort_at is not None:
                raise EngineError("the engine is stopping", 503)
            self._pooling.add(job)
            self._wake.notify()

    def cancel(self, request: Request) -> None:
        """Free the request's place at the next step. Nothing more is delivered after that; a late call is harmless."""
        with self._wake:
            request.cancelled = True
            self._wake.notify()

    def forget(self, weights: Weights) -> None:
        """Drop cached keys and values of weights that no request can name any more."""
        with self._wake:
            self._gone.append(weights)
            self._wake.notify()

    def stop(self, grace_s: float) -> None:
        """Take no new requests, and abort those that are not done in ``grace_s`` seconds. The thread then ends."""
        with self._wake:
            self._abort_at = time.monotonic() + grace_s
            self._wake.notify()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def _loop(self) -> None:
        with torch.inference_mode():
            while self._prepare():
                if self._freed:  # not with _wake held: who asks would wait for it
                    self._freed = False
                    give_back()
                self._steps += 1
                have_a_step = first_of(self._running, self._steps)
                for weights in dict.fromkeys(r.weights for r in have_a_step):
                    group = [r for r in have_a_step if r.weights is weights]
                    try:
                        self._advance(weights, group, have_a_step)
                    except PassLeft:
                        break  # the step is made again, behind who came
                    except Exception as e:  # one failed pass must not end the requests of other weights, or the engine
                        log.exception("a forward pass over %d requests failed", len(group))
                        for request in group:
                            self._end(request, Output([], [], "", Finish.ABORT, error=f"{type(e).__name__}: {e}"))
                if self._pooling:
                    self._compute_with(self._most_threads)
                self._pooling.advance(bool(self._running), self._somebody_came)

    def _prepare(self) -> bool:
        """Wait for work, drop what was cancelled, admit what fits. False when the thread should end."""
        with self._wake:
            while not (self._waiting or self._running or self._pooling or self._gone or self._abort_at is not None):
                beat()
                if self._wake.wait(BEAT_S):
                    continue
                self._idle += 1
                if self._idle == IDLE_BEATS:
                    self._freed = True
                    return True
            self._idle = 0
            self._freed = bool(self._gone)
            beat()
            for weights in self._gone:
                self._store.forget(weights)
            self._gone.clear()
            if self._abort_at is not None and (
                time.monotonic() >= self._abort_at or not (self._waiting or self._running)
            ):
                for request in [*self._running, *self._waiting]:
                    self._end(request, Output([], [], "", Finish.ABORT))
                self._pooling.abort()
                return False
            self._admitted = self._came
            for request in [r for r in [*self._running, *self._waiting] if r.cancelled]:
                self._end(request, None)
            while self._waiting:
                request = min(self._waiting, key=lambda r: r.params.priority)  # of equals the one that came first
                if len(self._running) >= self._max_num_seqs and not self._made_way(request):
                    break
                kv = self._store.open(request.weights, request.keys)
                if kv is None and self._made_way(request):
                    continue
                if kv is None:
                    break
                request.kv = kv
                if len(request.tokens) == request.prompt_len:
                    request.cached_tokens = len(kv.ids)
                self._waiting.remove(request)
                self._running.append(request)
        return True

    def _somebody_came(self) -> bool:
        """Whether a request that somebody waits for was submitted since requests were last admitted. It ends the turn
        of the loop, not all that follow, so that what was left goes on even where there is no room for it."""
        return self._came != self._admitted

    def _made_way(self, request: Request) -> bool:
        """Whether one that nobody waits for could be put back for this one; the youngest is. _wake is held."""
        behind = [r for r in self._running if r.params.priority > request.params.priority]
        if behind:
            self._put_back(behind[-1])
        return bool(behind)

    def _put_back(self, request: Request) -> None:
        """Take a running request's place and memory; it goes on from its tokens later. _wake is held."""
        assert request.kv is not None
        self._store.close(request.kv)
        request.kv = None
        self._running.remove(request)
        self._waiting.appendleft(request)

    def _advance(self, weights: Weights, group: Sequence[Request], of_step: Sequence[Request]) -> None:
        """One step of the requests that share ``weights``, of all that have it."""
        spans: list[tuple[Request, SequencePiece]] = []
        decoding = sum(1 for r in of_step if r.kv is not None and len(r.tokens) - len(r.kv.ids) == 1)
        behind = CHUNK
        budget = CHUNK_ALONE if not decoding and any(r.params.priority == 0 for r in of_step) else CHUNK
        for request in sorted(group, key=lambda r: r.params.priority):
            if request.kv is None:
                continue  # preempted for an older one in this very step
            left = len(request.tokens) - len(request.kv.ids)
            if left == 1:
                if self._room(request):
                    spans.append((request, request.piece(len(request.tokens) - 1, len(request.tokens), sample=True)))
            elif (room := budget if request.params.priority <= 0 else min(budget, behind)) > 0:
                size = min(left, room)
                budget -= size
                behind -= size if request.params.priority > 0 else 0
                start = len(request.kv.ids)
                spans.append((request, request.piece(start, start + size, sample=size == left)))
        spans = [(r, s) for r, s in spans if r.kv is s.kv]
        if not spans:
            return
        # Long products, for which all threads are worth it.
        reads = any(len(s.ids) > 1 for _, s in spans) and sum(len(s.ids) for _, s in spans) >= CHUNK
        started = time.perf_counter()
        self._compute_with(self._most_threads if reads else self._threads.count)
        awaited = any(r.params.priority <= 0 for r, _ in spans)
        pack = Pack([s for _, s in spans], self._runner.heads, None if awaited else self._somebody_came)
        logits = self._runner.forward(weights.merged, pack)
        pack.commit()
        sampled = [r for r, s in spans if s.sample]
        if sampled:
            params = [r.params for r in sampled]
            logits = penalised(logits, params, [(r.tokens, r.prompt_len) for r in sampled])
            finite = torch.isfinite(logits.amax(dim=-1)).tolist()
            if not all(finite):  # what one request asked for, or its weights, must not end the others
                for request in (r for r, fine in zip(sampled, finite, strict=True) if not fine):
                    self._end(request, Output([], [], "", Finish.ABORT, error="no token has a finite probability"))
                kept = [i for i, fine in enumerate(finite) if fine]
                sampled, params, logits = [sampled[i] for i in kept], [params[i] for i in kept], logits[kept]
            uniforms = [r.rng.random() if r.params.temperature > 0 else 0.0 for r in sampled]
            for request, token, logprob in zip(sampled, *sample(logits, params, uniforms), strict=True):
                self._take(request, token, logprob)
        if all(len(s.ids) == 1 for _, s in spans):
            self._threads.took(len(spans), time.perf_counter() - started)

    def _compute_with(self, threads: int) -> None:
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)

    def _room(self, request: Request) -> bool:
        """Make room for the next token at the price of the youngest requests, first of those that nobody waits for;
        False when that is this one."""
        assert request.kv is not None
        while not self._store.ensure(request.kv, len(request.tokens)):
            youngest = max(reversed(self._running), key=lambda r: r.params.priority)
            with self._wake:
                self._put_back(youngest)
            if youngest is request:
                return False
        return True

    def _take(self, request: Request, token: int, logprob: float) -> None:
        """Add a sampled token to its request, and end the request where it must."""
        request.add(token)
        params, text = request.params, request.text
        finish: Finish | None = None
        reason: str | int | None = None
        if token in self._eos_ids and not params.ignore_eos:
            finish = Finish.STOP
        elif token in params.stop_token_ids:
            finish, reason = Finish.STOP, token
        elif (hit := text.push(token)) is not None:
            finish, reason = Finish.STOP, hit
        elif (
            len(request.tokens) - request.prompt_len >= params.max_tokens or len(request.tokens) >= self._max_model_len
        ):
            finish = Finish.LENGTH
        if finish is not None and not isinstance(reason, str) and (hit := text.finish()) is not None:
            finish, reason = Finish.STOP, hit
        out = Output([token], [logprob], text.take(), finish, reason, request.cached_tokens)
        if finish is None:
            request.deliver(out)
        else:
            self._end(request, out)

    def _end(self, request: Request, out: Output | None) -> None:
        """Free the request's place, then say so; ``out`` is its last output, None for a client that went away."""
        if request.kv is not None:
            self._store.close(request.kv)
            request.kv = None
        with self._wake:
            (self._running if request in self._running else self._waiting).remove(request)
        request.release()
        if out is not None:
            request.deliver(out)


def first_of(running: Sequence[Request], step: int) -> Sequence[Request]:
    """Those that have the ``step``-th step: all, or while somebody waits for an answer mostly those alone."""
    first = [r for r in running if r.params.priority == 0]
    return running if not first or step % BEHIND == 0 else first
