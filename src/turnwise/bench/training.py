"""`turnwise bench train`: what one training step costs, beside the least that any step on these tokens must do.

The limit is a plain forward and backward pass of the same model over the same sequences, with a cross-entropy loss on
the response tokens. A step of turnwise also scores the batch three times (old, reference, teacher) and runs the gate.
"""

from __future__ import annotations

import random
import time

import psutil
import torch

from turnwise.bench.report import BenchReport, Figure
from turnwise.config import Config
from turnwise.models import resolve_model
from turnwise.training.batching import microbatches, row_of
from turnwise.training.policy import Policy
from turnwise.training.step import compute_signals, optimiser_step, plan
from turnwise.types import Batch, Sample

PROMPT_TOKENS = 120
RESPONSE_TOKENS = 96
HINT = "Answer in two plain sentences, without a list, bold or headings."


def bench_training(config: Config, samples: int, repeats: int) -> BenchReport:
    """Measure steps on random ids: the cost does not depend on what the tokens say."""
    train = config.train
    policy = Policy(resolve_model(config.model.path), train)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=train.lr, betas=(0.9, 0.98), weight_decay=train.weight_decay)
    batch = _batch(samples, policy.vocabulary)
    limits, scoring, updates = [], [], []
    for _ in range(repeats + 1):  # the first round warms up and is not counted
        limits.append(_limit(policy, batch, train.microbatch_tokens))
        started = time.perf_counter()
        signals = compute_signals(policy, batch, train, lambda *_: None)
        scoring.append(time.perf_counter() - started)
        started = time.perf_counter()
        for chosen in plan(batch, train):
            optimiser_step(policy, optimizer, batch, signals, chosen, train, lambda *_: None)
        updates.append(time.perf_counter() - started)
    limit, score, update = (min(times[1:]) for times in (limits, scoring, updates))
    tokens = samples * (PROMPT_TOKENS + RESPONSE_TOKENS)
    total = score + update
    peak = _peak_memory_gb()
    return BenchReport(
        command="turnwise bench train",
        figures=[
            Figure("forward and backward alone (the limit)", f"{limit:.1f} s", f"{tokens / limit:.0f} tokens/s", "1"),
            Figure("scoring: old, reference, teacher", f"{score:.1f} s", "the limit", f"{score / limit:.2f}"),
            Figure(f"optimiser steps ({train.epochs} epoch)", f"{update:.1f} s", "the limit", f"{update / limit:.2f}"),
            Figure("a whole update without the gate", f"{total:.1f} s", "the limit", f"{total / limit:.2f}"),
            Figure("peak memory of the process", f"{peak:.2f} GB"),
        ],
        notes=[
            f"{samples} samples of {PROMPT_TOKENS} prompt and {RESPONSE_TOKENS} response tokens, all with a hint; "
            f"estimator {train.estimator}, LoRA rank {train.lora_rank}, {torch.get_num_threads()} threads, "
            f"device {policy.device}; best of {repeats}.",
        ],
    )


def _batch(count: int, vocabulary: int) -> Batch:
    rng = random.Random(0)
    samples = [
        Sample(
            turn_id=f"turn-{i}",
            session_id=f"session-{i}",
            prompt_ids=[rng.randrange(vocabulary) for _ in range(PROMPT_TOKENS)],
            response_ids=[rng.randrange(vocabulary) for _ in range(RESPONSE_TOKENS)],
            logprobs=None,
            temperature=0.8,
            version=0,
            reward=-1.0 if i % 4 else 1.0,
            hint=HINT,
            hint_at=PROMPT_TOKENS - 5,
        )
        for i in range(count)
    ]
    return Batch(1, "bench", 0, samples)


def _limit(policy: Policy, batch: Batch, microbatch_tokens: int) -> float:
    rows = [row_of(i, s.prompt_ids, s.response_ids) for i, s in enumerate(batch.samples)]
    started = time.perf_counter()
    for group in microbatches(rows, microbatch_tokens):
        hidden = policy.hidden(group)
        targets = torch.cat([torch.tensor(batch.samples[r.spans[0].sample].response_ids) for r in group])
        logits = policy.log_softmax(hidden, torch.ones(len(hidden), device=policy.device))
        torch.nn.functional.nll_loss(logits, targets.to(policy.device)).backward()
    for parameter in policy.parameters():
        parameter.grad = None
    return time.perf_counter() - started


def _peak_memory_gb() -> float:
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 1e9
    import resource  # not on Windows, where nothing else here runs either

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return max(peak, psutil.Process().memory_info().rss) / 1e9
