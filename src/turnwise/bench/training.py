"""`turnwise bench train`: what one training step costs, beside the least that any step on these tokens must do.

The limit is a plain forward and backward pass of the same model over the same sequences, with a cross-entropy loss on
the response tokens. A step of turnwise also scores the batch three times (old, reference, teacher) and runs the gate.
What turns share at their beginnings is read once: sessions of several turns are measured beside each turn alone.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

import psutil
import torch

from turnwise.bench.report import BenchReport, Figure
from turnwise.config import Config, TrainConfig
from turnwise.models import resolve_model
from turnwise.training.batching import (
    Row,
    TokenText,
    distinct_tokens,
    microbatches,
    padded_tokens,
    row_of,
)
from turnwise.training.policy import HEAD_CHUNK, Policy, hinted_prompt
from turnwise.training.step import compute_signals, optimiser_step, plan
from turnwise.training.weights.devices import with_passes
from turnwise.types import Batch, Sample

SESSIONS = (1, 5, 20)
"""Turns of a session."""
SYSTEM_TOKENS, QUESTION_TOKENS, THINKING_TOKENS, ANSWER_TOKENS = 60, 16, 10, 12
TRIES, STEPS = 4, 3
"""Rollouts of a group, and their steps."""
PAGE_TOKENS, CALL_TOKENS, SHOWN_TOKENS = 900, 20, 220
PROMPT_TOKENS = 120
RESPONSE_TOKENS = 96
HINT = "Answer in two plain sentences, without a list, bold or headings."


def bench_training(config: Config, samples: int, repeats: int) -> BenchReport:
    """Measure steps on random ids: the cost does not depend on what the tokens say."""
    train = with_passes(config.train)
    policy = Policy(resolve_model(config.model.path), train)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=train.lr, betas=(0.9, 0.98), weight_decay=train.weight_decay)
    batch = _batch(samples, policy.vocabulary)
    limits, scoring, updates = [], [], []
    for _ in range(repeats + 1):  # the first round warms up and is not counted
        alone = [row_of(i, s.prompt_ids, s.response_ids) for i, s in enumerate(batch.samples)]
        limits.append(_limit(policy, microbatches(alone, train.microbatch_tokens), train.microbatch_tokens))
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
            *(figure for turns in SESSIONS for figure in _session(policy, train, turns, repeats)),
            *_group(policy, train),
            Figure("peak memory of the process", f"{peak:.2f} GB"),
        ],
        notes=[
            f"{samples} samples of {PROMPT_TOKENS} prompt and {RESPONSE_TOKENS} response tokens, all with a hint; "
            f"estimator {train.estimator}, LoRA rank {train.lora_rank}, {train.microbatch_tokens} tokens in a "
            f"pass, {torch.get_num_threads()} threads, device {policy.device}; best of {repeats}.",
            f"A session: a system message of {SYSTEM_TOKENS} tokens, questions of {QUESTION_TOKENS}, answers of "
            f"{ANSWER_TOKENS} behind {THINKING_TOKENS} of thinking, which the next prompts leave out. A unique token "
            "is one that no other turn has read behind the same beginning; padding counts as computed. Time: forward "
            "and backward pass over all turns, beside the same with each turn in a row of its own.",
            f"A group: {TRIES} rollouts of {STEPS} steps that begin with the same {PAGE_TOKENS} tokens; each step "
            f"answers with {CALL_TOKENS} and is shown {SHOWN_TOKENS} more. One pass each.",
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


def _session(policy: Policy, train: TrainConfig, turns: int, repeats: int) -> list[Figure]:
    """A session of so many turns: what is computed for it, and what its teacher computes besides."""
    rng = random.Random(turns)

    def ids(count: int) -> list[int]:
        return [rng.randrange(policy.vocabulary) for _ in range(count)]

    context, texts, told = ids(SYSTEM_TOKENS), list[TokenText](), list[TokenText]()
    for i in range(turns):
        asked, answer = [*context, *ids(QUESTION_TOKENS)], ids(ANSWER_TOKENS)
        texts.append(TokenText(i, asked, [*ids(THINKING_TOKENS), *answer]))
        hinted = hinted_prompt(asked, HINT, len(asked) - 5, policy.tokenizer)
        told.append(TokenText(turns + i, hinted, texts[-1].response_ids))
        context = [*asked, *answer]

    def groups(of: list[TokenText], merged: bool) -> list[list[Row]]:
        rows = policy.rows_of(of) if merged else [row_of(t.sample, t.prompt_ids, t.response_ids) for t in of]
        return microbatches(rows, train.microbatch_tokens)

    def computed(of: list[TokenText], merged: bool) -> int:
        return sum(padded_tokens(group) for group in groups(of, merged))

    times: dict[bool, float] = {
        merged: min(_limit(policy, groups(texts, merged), train.microbatch_tokens) for _ in range(repeats))
        for merged in (True, False)
    }
    unique, kind = distinct_tokens(texts), f"session of {turns} turn{'s' * (turns > 1)}"
    with_teacher = computed([*texts, *told], True) / distinct_tokens([*texts, *told])
    return [
        Figure(
            f"{kind}: computed per unique token",
            f"{computed(texts, True) / unique:.3f}",
            f"each turn alone {computed(texts, False) / unique:.2f}",
            f"{computed(texts, True) / computed(texts, False):.2f}",
        ),
        Figure(f"{kind}: the same with the teacher's contexts", f"{with_teacher:.3f}"),
        Figure(
            f"{kind}: forward and backward",
            f"{times[True]:.1f} s",
            f"each turn alone {times[False]:.1f} s",
            f"{times[True] / times[False]:.2f}",
        ),
    ]


def _group(policy: Policy, train: TrainConfig) -> list[Figure]:
    """A group of rollouts in which each step sees all that came before it: what it costs beside each step alone."""
    rng = random.Random(TRIES)
    page, texts = [rng.randrange(policy.vocabulary) for _ in range(PAGE_TOKENS)], list[TokenText]()
    for _ in range(TRIES):
        context = page
        for _ in range(STEPS):
            call, shown = ([rng.randrange(policy.vocabulary) for _ in range(n)] for n in (CALL_TOKENS, SHOWN_TOKENS))
            texts.append(TokenText(len(texts), context, call))
            context = [*context, *call, *shown]

    def seconds(rows: list[Row]) -> float:
        return _limit(policy, microbatches(rows, train.microbatch_tokens), train.microbatch_tokens)

    kind, together = f"group of {TRIES} rollouts, {STEPS} steps", policy.rows_of(texts)
    alone = seconds([row_of(t.sample, t.prompt_ids, t.response_ids) for t in texts])
    ours = seconds(together)
    figures = [
        Figure(
            f"{kind}: forward and backward", f"{ours:.1f} s", f"each step alone {alone:.1f} s", f"{ours / alone:.2f}"
        )
    ]
    if policy.looks_by_text:
        policy.looks_by_text = False
        masked = seconds(together)
        policy.looks_by_text = True
        figures.append(
            Figure(f"{kind}: by text", f"{ours:.1f} s", f"a mask over the row {masked:.1f} s", f"{ours / masked:.2f}")
        )
    return figures


def _limit(policy: Policy, groups: Sequence[Sequence[Row]], microbatch_tokens: int) -> float:
    """Seconds of a forward and backward pass over these rows with a loss on their responses."""
    started = time.perf_counter()
    for group in groups:
        hidden = policy.hidden(group, recompute=padded_tokens(group) > microbatch_tokens)
        leaf = hidden.detach().requires_grad_()
        targets = torch.tensor([i for row in group for span in row.spans for i in row.ids[span.start : span.end]])
        for at in range(0, len(leaf), HEAD_CHUNK):
            part = leaf[at : at + HEAD_CHUNK]
            logits = policy.log_softmax(part, torch.ones(len(part), device=policy.device))
            torch.nn.functional.nll_loss(logits, targets[at : at + HEAD_CHUNK].to(policy.device)).backward()
        hidden.backward(leaf.grad)
    for parameter in policy.parameters():
        parameter.grad = None
    return time.perf_counter() - started


def _peak_memory_gb() -> float:
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 1e9
    import resource  # not on Windows, where nothing else here runs either

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return max(peak, psutil.Process().memory_info().rss) / 1e9
