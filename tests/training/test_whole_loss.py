"""The whole loss by value and by gradient, against a naive one: a turn at a time, whole logits, and autograd.

The naive loss is docs/training.md written down: no chunks, no padding, no merged rows, no hidden states kept, nothing
shared with the trainer but the model. They are compared on a first step, where every ratio is 1, and on a second.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.training.tiny import batch, ids, no_tick, sample, shake, train_config
from turnwise.config import TrainConfig
from turnwise.training.policy import Policy, hinted_prompt
from turnwise.training.step import compute_signals, optimiser_step
from turnwise.types import Sample

W_OPD, BETA = 0.5, 0.3


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
            self.old = [self.chosen(self.table(s, s.prompt_ids), s) for s in samples]
            with policy.model.disable_adapter():
                self.ref = [self.chosen(self.table(s, s.prompt_ids), s) for s in samples]
            self.teacher = {i: self.table(s, self.hinted(s)) for i, s in enumerate(samples) if s.hint}
        self.advantage = [torch.full_like(old, s.reward) for s, old in zip(samples, self.old, strict=True)]
        if config.estimator == "sampled":
            gaps = {i: self.chosen(table, samples[i]) - self.old[i] for i, table in self.teacher.items()}
            mean = sum(gap.sum() for gap in gaps.values()) / sum(len(gap) for gap in gaps.values())
            for i, gap in gaps.items():
                self.advantage[i] = self.advantage[i] + config.w_opd * (gap - mean)

    def hinted(self, one: Sample) -> list[int]:
        return hinted_prompt(one.prompt_ids, one.hint, one.hint_at, self.policy.tokenizer)

    def table(self, one: Sample, prompt: list[int]) -> Tensor:
        """Log-probs over the vocabulary at each response position, at the turn's temperature, in float64."""
        logits = self.policy.model(input_ids=torch.tensor([prompt + one.response_ids])).logits[0].double()
        return torch.log_softmax(logits[len(prompt) - 1 : -1] / (one.temperature or 1.0), dim=-1)

    @staticmethod
    def chosen(table: Tensor, one: Sample) -> Tensor:
        return torch.stack([table[k, token] for k, token in enumerate(one.response_ids)])

    def surrogate(self, i: int, logp: Tensor) -> Tensor:
        c, advantage, recorded = self.config, self.advantage[i], self.samples[i].logprobs
        rho = torch.exp(logp - self.old[i])
        w = torch.ones_like(rho) if recorded is None else torch.exp(self.old[i] - torch.tensor(recorded)).clamp(0, 2.0)
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
        if self.config.aggregation == "turn-mean":
            return torch.stack([t.mean() for t in terms]).mean()
        return torch.cat(terms).mean()

    def loss(self) -> Tensor:
        tables = [self.table(s, s.prompt_ids) for s in self.samples]
        logps = [self.chosen(table, s) for table, s in zip(tables, self.samples, strict=True)]
        scored = [i for i, a in enumerate(self.advantage) if a.any()]
        pg = self.mean([self.surrogate(i, logps[i]) for i in scored])
        deltas = [ref - logp for ref, logp in zip(self.ref, logps, strict=True)]
        total = pg + self.config.beta_kl * self.mean([torch.exp(d) - d - 1 for d in deltas])
        if self.config.estimator != "sampled":
            total = total + self.config.w_opd * self.mean([self.distillation(i, tables[i]) for i in self.teacher])
        return total

    def gradient(self) -> tuple[float, list[Tensor]]:
        loss = self.loss()
        grads = torch.autograd.grad(loss, self.policy.parameters())
        return loss.item(), list(grads)


@pytest.mark.parametrize("aggregation", ["turn-mean", "token-mean"])
@pytest.mark.parametrize(
    ("estimator", "divergence"),
    [("exact", "reverse"), ("exact", "forward"), ("topk", "reverse"), ("topk", "forward"), ("sampled", "reverse")],
)
def test_two_steps_equal_the_naive_loss(tiny_dir: Path, estimator: str, divergence: str, aggregation: str) -> None:
    config = train_config(
        estimator=estimator,
        divergence=divergence,
        aggregation=aggregation,
        top_k=20,
        w_opd=W_OPD,
        beta_kl=BETA,
        grad_clip=1e9,
        microbatch_tokens=64,
    )
    policy, samples = Policy(tiny_dir, config), mixed()
    shake(policy)
    naive = Naive(policy, samples, config)
    signals = compute_signals(policy, batch(samples), config, no_tick)
    assert {float(s.weight.max()) for s in signals} > {1.0, 2.0}, "missing, capped and in between"
    optimizer = torch.optim.AdamW(policy.parameters(), lr=0.02, weight_decay=0.0)
    metrics: list[dict[str, float]] = []
    for _ in range(2):
        loss, expected = naive.gradient()
        metrics.append(optimiser_step(policy, optimizer, batch(samples), signals, range(len(samples)), config, no_tick))
        assert metrics[-1]["loss"] == pytest.approx(loss, rel=1e-4)
        scale = max(g.abs().max().item() for g in expected)
        for parameter, g in zip(policy.parameters(), expected, strict=True):
            assert parameter.grad is not None
            assert (parameter.grad - g).abs().max().item() < 1e-4 * scale
    assert metrics[0]["ratio"] == pytest.approx(1.0, abs=1e-4)
    assert abs(metrics[1]["ratio"] - 1) > 0.05
    assert metrics[0]["clip_fraction"] == 0 < metrics[1]["clip_fraction"]
