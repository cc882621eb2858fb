"""The loss of docs/training.md written down: a turn at a time, whole logits, and autograd.

No chunks, no padding, no merged rows, no hidden states kept, nothing shared with the trainer but the model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from tests.training.tiny import ids, sample
from turnwise.config import TrainConfig
from turnwise.training.lessons.making import Lesson
from turnwise.training.policy import Policy, hinted_prompt
from turnwise.types import Sample

BETAS = (0.9, 0.98)


def mixed() -> list[Sample]:
    """One of each: score alone, hint alone, both, neither, and two turns of one session whose ids extend one another.

    Greedy, T = 0.7 and T = 1; recorded log-probs that are close, far off on both sides of the cap, and missing.
    """
    first = sample(4, temperature=0.7, reward=-1.0)
    prompt = [*first.prompt_ids, *first.response_ids, *ids(77, 5)]
    samples = [
        sample(1, temperature=1.0, reward=1.0, hint=None),
        sample(2, temperature=0.7, reward=0.0),
        sample(3, temperature=0.0, reward=1.0),
        first,
        sample(5, session_id=first.session_id, prompt_ids=prompt, hint_at=len(prompt) - 1, temperature=1.0),
        sample(6, temperature=0.7, reward=0.0, hint=None),
    ]
    recorded = {0: -6.0, 2: -9.0, 3: -2.0}
    return [
        s if i not in recorded else sample_with(s, [recorded[i] - 0.3 * k for k in range(len(s.response_ids))])
        for i, s in enumerate(samples)
    ]


def sample_with(one: Sample, logprobs: list[float]) -> Sample:
    return Sample(**{f: getattr(one, f) for f in Sample.__dataclass_fields__} | {"logprobs": logprobs})


def folded(table: Tensor, kept: list[Tensor]) -> Tensor:
    """The kept tokens' probabilities and, last, all other mass."""
    bins = [torch.cat([row[ids], row.sum().view(1) - row[ids].sum()]) for row, ids in zip(table, kept, strict=True)]
    return torch.stack(bins)


class Naive:
    """The loss as it is written. What is known at the start of the update is taken when this is made."""

    def __init__(self, policy: Policy, samples: list[Sample], config: TrainConfig) -> None:
        self.policy, self.samples, self.config = policy, samples, config
        with torch.no_grad():
            self.old = [self.chosen(self.table(s, s.prompt_ids, s.temperature or 1.0), s) for s in samples]
            with policy.reference():
                self.base = [self.table(s, s.prompt_ids) for s in samples]
            self.teacher = {i: self.table(s, self.hinted(s)) for i, s in enumerate(samples) if s.hint}
            warm = {
                i: self.table(samples[i], self.hinted(samples[i]), samples[i].temperature or 1.0) for i in self.teacher
            }
        self.advantage = [self.score(i) for i in range(len(samples))]
        if config.estimator == "sampled":
            gaps = {i: self.chosen(table, samples[i]) - self.old[i] for i, table in warm.items()}
            for i, gap in gaps.items():
                others = torch.cat([other for j, other in gaps.items() if j != i])
                kept = (gap - others.mean()).clamp(-config.advantage_clip, config.advantage_clip)
                self.advantage[i] = self.advantage[i] + config.w_opd * kept

    def score(self, i: int) -> Tensor:
        """c (s − b): b is the mean of the others' scores, each weighed by its confidence, and of eight zeroes."""
        reward = self.samples[i].reward
        others = [s.reward for j, s in enumerate(self.samples) if j != i]
        b = sum(others) / (8 + sum(abs(r) for r in others))
        sign = (reward > 0) - (reward < 0)
        return torch.full_like(self.old[i], self.config.w_binary * abs(reward) * (sign - b))

    def hinted(self, one: Sample) -> list[int]:
        return hinted_prompt(one.prompt_ids, one.hint, one.hint_at, self.policy.tokenizer)

    def table(self, one: Sample, prompt: list[int], temperature: float = 1.0) -> Tensor:
        """Log-probs over the vocabulary at each response position, in float64."""
        logits = self.policy.model(input_ids=torch.tensor([prompt + one.response_ids])).logits[0].double()
        return torch.log_softmax(logits[len(prompt) - 1 : -1] / temperature, dim=-1)

    @staticmethod
    def chosen(table: Tensor, one: Sample) -> Tensor:
        return torch.stack([table[k, token] for k, token in enumerate(one.response_ids)])

    def surrogate(self, i: int) -> Tensor:
        c, one, advantage = self.config, self.samples[i], self.advantage[i]
        logp = self.chosen(self.table(one, one.prompt_ids, one.temperature or 1.0), one)
        rho = torch.exp(logp - self.old[i])
        recorded = None if one.logprobs is None else torch.tensor(one.logprobs, dtype=torch.float64)
        w = torch.ones_like(rho) if recorded is None else torch.exp(self.old[i] - recorded).clamp(0, 2.0)
        return -w * torch.minimum(rho * advantage, rho.clamp(1 - c.clip_low, 1 + c.clip_high) * advantage)

    def distillation(self, i: int, student: Tensor) -> Tensor:
        """KL per position; for topk, over the teacher's K tokens and one bin for the rest."""
        p, q = student.exp(), self.teacher[i].exp()
        if self.config.estimator == "topk":
            top = [row.argsort(descending=True)[: self.config.top_k] for row in q]
            p, q = folded(p, top), folded(q, top)
        if self.config.divergence == "reverse":
            return (p * (p.log() - q.log())).sum(-1)
        return (q * (q.log() - p.log())).sum(-1)

    def mean(self, terms: list[Tensor]) -> Tensor:
        """Over turns of the mean over tokens, or over all tokens: of the turns that have the term, and no others."""
        if not terms:
            return torch.zeros((), dtype=torch.float64)
        if self.config.aggregation == "turn-mean":
            return torch.stack([t.mean() for t in terms]).mean()
        return torch.cat(terms).mean()

    def loss(self, chosen: Sequence[int]) -> Tensor:
        """Of an optimiser step over the samples at ``chosen``."""
        plain = {i: self.table(self.samples[i], self.samples[i].prompt_ids) for i in chosen}
        pg = self.mean([self.surrogate(i) for i in chosen if self.advantage[i].any()])
        kl = self.mean([(plain[i].exp() * (plain[i] - self.base[i])).sum(-1) for i in chosen])
        total = pg + self.config.beta_kl * kl
        if self.config.estimator != "sampled":
            taught = [i for i in chosen if i in self.teacher]
            total = total + self.config.w_opd * self.mean([self.distillation(i, plain[i]) for i in taught])
        return total

    def gradient(self, chosen: Sequence[int]) -> tuple[float, list[Tensor]]:
        loss = self.loss(chosen)
        grads = torch.autograd.grad(loss, self.policy.parameters())
        return loss.item(), list(grads)


def of_lessons(policy: Policy, lessons: Sequence[Lesson]) -> tuple[float, list[Tensor]]:
    """The loss of lessons and its gradient: a lesson at a time and a token at a time, with two passes of the model.

    −log p at a token that was wished for; KL(base ‖ policy) at every other one, where the base model reads the plain
    answer in place of the lesson's, from where they are the same to their end.
    """

    def table(asked: list[int], answer: list[int]) -> Tensor:
        logits = policy.model(input_ids=torch.tensor([asked + answer])).logits[0].double()
        return torch.log_softmax(logits[len(asked) - 1 : -1], dim=-1)

    losses = []
    for lesson in lessons:
        student, opening = table(lesson.asked, lesson.answer), len(lesson.answer) - lesson.kept
        with torch.no_grad(), policy.reference():
            base = table(lesson.asked, lesson.answer)
            if lesson.plain:
                plain = table(lesson.asked, lesson.plain)
                base = torch.cat([base[:opening], plain[len(lesson.plain) - lesson.kept :]])
        costs = [
            -student[k, token] if lesson.wished[k] else (base[k].exp() * (base[k] - student[k])).sum()
            for k, token in enumerate(lesson.answer)
        ]
        losses.append(torch.stack(costs).mean())
    loss = torch.stack(losses).mean()
    return loss.item(), list(torch.autograd.grad(loss, policy.parameters()))


class ByHand:
    """AdamW and the clip of the gradient, written down."""

    def __init__(self, policy: Policy, config: TrainConfig) -> None:
        self.parameters, self.config, self.steps = policy.parameters(), config, 0
        self.mean = [torch.zeros_like(p) for p in self.parameters]
        self.square = [torch.zeros_like(p) for p in self.parameters]

    def step(self, gradient: list[Tensor], scale: float) -> float:
        self.steps += 1
        norm = math.sqrt(sum(float((g**2).sum()) for g in gradient))
        rate, (b1, b2) = self.config.lr * scale, BETAS
        for p, g, m, v in zip(self.parameters, gradient, self.mean, self.square, strict=True):
            g = g * min(1.0, self.config.grad_clip / (norm + 1e-6))
            m.mul_(b1).add_((1 - b1) * g)
            v.mul_(b2).add_((1 - b2) * g**2)
            unbiased = m / (1 - b1**self.steps), v / (1 - b2**self.steps)
            p.data -= rate * self.config.weight_decay * p.data + rate * unbiased[0] / (unbiased[1].sqrt() + 1e-8)
        return norm
