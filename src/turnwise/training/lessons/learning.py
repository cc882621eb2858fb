"""Learning from lessons, in the context that has no wish: the tokens that were wished for, and nothing else.

What the wish put into an answer, and its end, is learned as it stands there (−log p); at every other token the policy
is held to what the base model thinks, that was not told the wish. Steps go on until the lessons set aside are learned
no better: a fixed number leaves most of a new wish unlearned, and goes on wearing out an old one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from turnwise.config import TrainConfig
from turnwise.training import losses
from turnwise.training.batching import microbatches, padded_tokens, row_of
from turnwise.training.lessons.making import Lesson
from turnwise.training.policy import HEAD_CHUNK, Policy
from turnwise.training.step import NotFinite, Tick, scaled
from turnwise.training.weights.ranks import IDLE

SET_ASIDE = 4
"""Of so many lessons one is not trained on: by its loss it is seen when the rest are learned."""
PATIENCE = 2
"""Passes in a row that may fail to lower the loss of the lessons set aside; then the rest are learned."""
PATIENT_STEPS = 4
"""Optimiser steps that these have at least: behind a step on samples its momentum goes on for some.

Of five lessons in a second update, in passes of one step, the loss set aside was 0.416, 0.416, 0.417, 0.404, 0.397,
0.393 and 0.394: of 32 answers 10 had the wished words after two passes, and 29 after six (8 before; 0.5B model).
"""


@dataclass(frozen=True, slots=True)
class Taught:
    """A lesson and the base model's final hidden states [R, H] at its R answer tokens, without the wish."""

    lesson: Lesson
    base: Tensor


@torch.no_grad()
def with_base(policy: Policy, lessons: Sequence[Lesson], microbatch_tokens: int, tick: Tick) -> list[Taught]:
    """What the base model thinks at each token of each lesson, asked the bare question.

    Of an answer that goes on plainly behind the words of a wish it reads what is plain alone: behind "Dear friend," it
    would think of letters.
    """
    hidden: dict[int, Tensor] = {}
    plain = {i: lesson for i, lesson in enumerate(lessons) if lesson.plain}
    rows = [row_of(i, lesson.asked, lesson.answer) for i, lesson in enumerate(lessons)]
    rows += [row_of(len(lessons) + i, lesson.asked, lesson.plain) for i, lesson in plain.items()]
    groups = microbatches(rows, microbatch_tokens)
    with policy.reference():
        for done, group in enumerate(groups):
            tick("scoring lessons", done, len(groups))
            spans = [span for row in group for span in row.spans]
            parts = policy.hidden(group).split([s.end - s.start for s in spans])
            hidden |= dict(zip((s.sample for s in spans), parts, strict=True))
    for i, lesson in plain.items():
        opening, first = len(lesson.answer) - lesson.kept, len(lesson.plain) - lesson.kept
        hidden[i] = torch.cat([hidden[i][:opening], hidden[len(lessons) + i][first:]])
    return [Taught(lesson, hidden[i]) for i, lesson in enumerate(lessons)]


def apart(taught: Sequence[Taught]) -> tuple[list[Taught], list[Taught]]:
    """The lessons to learn, and those set aside."""
    return [t for i, t in enumerate(taught) if i % SET_ASIDE], [t for i, t in enumerate(taught) if not i % SET_ASIDE]


def loss_of(policy: Policy, taught: Sequence[Taught], microbatch_tokens: int, tick: Tick, *, learn: bool) -> float:
    """Mean over lessons of the mean over answer tokens, in nats; with ``learn`` its gradient is added.

    A token that was wished for costs −log p, every other one the forward KL from the base model.
    """
    total = 0.0
    rows = [row_of(i, t.lesson.asked, t.lesson.answer) for i, t in enumerate(taught)]
    groups = policy.ranks.deal(microbatches(rows, microbatch_tokens))
    for done, group in enumerate(groups):
        tick("lessons", done, len(groups))
        if group is IDLE:
            policy.idle_pass(learn)
            continue
        order = [taught[span.sample] for row in group for span in row.spans]
        weight = torch.cat([torch.full((len(t.base),), 1 / (len(t.base) * len(taught))) for t in order])
        weight = weight.to(policy.device)
        said = torch.tensor([y for t in order for y in t.lesson.answer], device=policy.device)
        wished = torch.tensor([w for t in order for w in t.lesson.wished], device=policy.device)
        with torch.set_grad_enabled(learn):
            hidden = policy.hidden(group, recompute=padded_tokens(group) > microbatch_tokens)
        leaf = hidden.detach().requires_grad_(learn)
        base = torch.cat([t.base for t in order])
        one = torch.ones(len(base), device=policy.device)
        for at in range(0, len(base), HEAD_CHUNK):
            part = slice(at, at + HEAD_CHUNK)
            with torch.set_grad_enabled(learn):
                student = policy.log_softmax(leaf[part], one[part])
                target = policy.log_softmax(base[part], one[part], "base")
                surprise = -student.gather(-1, said[part].unsqueeze(-1)).squeeze(-1)
                away = losses.divergence(student, target, "forward")
                loss = (weight[part] * torch.where(wished[part], surprise, away)).sum()
            if learn:
                loss.backward()
            total += loss.item()
        if learn:
            assert leaf.grad is not None
            hidden.backward(leaf.grad)
    return policy.ranks.total({"": {"loss": total}})[""]["loss"]


def learn_step(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    taught: Sequence[Taught],
    of_turns: int,
    config: TrainConfig,
    tick: Tick,
) -> float:
    """One optimiser step on these lessons, a smaller one for few of them; gives their loss before it.

    ``of_turns``: from how many turns of a person the update learns. Sixteen lessons that a lone turn made are not
    sixteen turns, and move the weights no further than it alone would. Raises NotFinite, with nothing moved.
    """
    optimizer.zero_grad()
    loss = loss_of(policy, taught, config.microbatch_tokens, tick, learn=True)
    norm = policy.clip_grad(config.grad_clip)
    if not (math.isfinite(loss) and math.isfinite(norm)):
        optimizer.zero_grad()
        raise NotFinite("the loss of the lessons is not finite")
    with scaled(optimizer, math.sqrt(min(len(taught), of_turns, config.minibatch) / config.minibatch)):
        optimizer.step()
    return loss
