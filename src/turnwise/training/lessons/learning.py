"""Learning from lessons: forward KL to the teacher at the teacher's answers, in the context that has no wish.

Steps go on until the lessons set aside are learned no better: a fixed number leaves most of a new wish unlearned, and
goes on wearing out an old one.
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

SET_ASIDE = 4
"""Of so many lessons one is not trained on: by its loss it is seen when the rest are learned."""
FEWEST = 4
"""Fewer lessons than this say too little: the wish is one that the model does not follow, or no wish about answers."""
LEARNED = 0.05
"""Nats per token: where the lessons set aside are no further from the teacher, there is nothing left to learn."""


@dataclass(frozen=True, slots=True)
class Taught:
    """A lesson and the teacher's final hidden states [R, H] at its R answer tokens."""

    lesson: Lesson
    teacher: Tensor


@torch.no_grad()
def with_teacher(policy: Policy, lessons: Sequence[Lesson], microbatch_tokens: int, tick: Tick) -> list[Taught]:
    """What the base model, told the wish, thinks at each token of each lesson."""
    hidden: dict[int, Tensor] = {}
    rows = [row_of(i, lesson.told, lesson.answer) for i, lesson in enumerate(lessons)]
    groups = microbatches(rows, microbatch_tokens)
    with policy.reference():
        for done, group in enumerate(groups):
            tick("scoring lessons", done, len(groups))
            spans = [span for row in group for span in row.spans]
            parts = policy.hidden(group).split([s.end - s.start for s in spans])
            hidden |= dict(zip((s.sample for s in spans), parts, strict=True))
    return [Taught(lesson, hidden[i]) for i, lesson in enumerate(lessons)]


def apart(taught: Sequence[Taught]) -> tuple[list[Taught], list[Taught]]:
    """The lessons to learn, and those set aside."""
    return [t for i, t in enumerate(taught) if i % SET_ASIDE], [t for i, t in enumerate(taught) if not i % SET_ASIDE]


def loss_of(policy: Policy, taught: Sequence[Taught], microbatch_tokens: int, tick: Tick, *, learn: bool) -> float:
    """Mean over lessons of the mean forward KL per answer token, in nats; with ``learn`` its gradient is added."""
    total = 0.0
    rows = [row_of(i, t.lesson.asked, t.lesson.answer) for i, t in enumerate(taught)]
    groups = microbatches(rows, microbatch_tokens)
    for done, group in enumerate(groups):
        tick("lessons", done, len(groups))
        order = [taught[span.sample] for row in group for span in row.spans]
        weight = torch.cat(
            [
                t.teacher.new_full((len(t.teacher),), 1 / (len(t.teacher) * len(taught)), dtype=torch.float32)
                for t in order
            ]
        )
        with torch.set_grad_enabled(learn):
            hidden = policy.hidden(group, recompute=padded_tokens(group) > microbatch_tokens)
        leaf = hidden.detach().requires_grad_(learn)
        teacher = torch.cat([t.teacher for t in order])
        one = torch.ones(len(teacher), device=policy.device)
        for at in range(0, len(teacher), HEAD_CHUNK):
            part = slice(at, at + HEAD_CHUNK)
            with torch.set_grad_enabled(learn):
                student = policy.log_softmax(leaf[part], one[part])
                target = policy.log_softmax(teacher[part], one[part])
                loss = (weight[part] * losses.divergence(student, target, "forward")).sum()
            if learn:
                loss.backward()
            total += loss.item()
        if learn:
            assert leaf.grad is not None
            hidden.backward(leaf.grad)
    return total


def learn_step(
    policy: Policy, optimizer: torch.optim.Optimizer, taught: Sequence[Taught], config: TrainConfig, tick: Tick
) -> float:
    """One optimiser step on these lessons, a smaller one for few of them; gives their loss before it.

    Raises NotFinite, with nothing moved.
    """
    optimizer.zero_grad()
    loss = loss_of(policy, taught, config.microbatch_tokens, tick, learn=True)
    norm = float(torch.nn.utils.clip_grad_norm_(policy.parameters(), config.grad_clip))
    if not (math.isfinite(loss) and math.isfinite(norm)):
        optimizer.zero_grad()
        raise NotFinite("the loss of the lessons is not finite")
    with scaled(optimizer, math.sqrt(min(len(taught), config.minibatch) / config.minibatch)):
        optimizer.step()
    return loss
