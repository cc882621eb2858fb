"""Training steps on the tiny model, and what they did to it."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from tests.training.tiny import batch, ids, no_tick, sample, train_config
from turnwise.config import TrainConfig
from turnwise.training.policy import Policy, hinted_prompt
from turnwise.training.step import compute_signals, optimiser_step
from turnwise.types import Sample


def update(folder: Path, samples: list[Sample], config: TrainConfig, steps: int = 1) -> tuple[list[float], list[dict]]:
    """Train on the samples; gives the change of each answer's log-prob and the metrics."""
    policy = Policy(folder, config)
    data = batch(samples)
    before = compute_signals(policy, data, config, no_tick)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=config.lr, weight_decay=0.0)
    everyone = range(len(samples))
    metrics = [optimiser_step(policy, optimizer, data, before, everyone, config, no_tick) for _ in range(steps)]
    after = compute_signals(policy, data, config, no_tick)
    return [(a.old - b.old).sum().item() for a, b in zip(after, before, strict=True)], metrics


def gradient(folder: Path, samples: list[Sample], config: TrainConfig, chosen: list[int]) -> list[Tensor]:
    """The gradient itself: clipping would give two gradients of different size the same length."""
    config = config.model_copy(update={"grad_clip": 1e9})
    policy = Policy(folder, config)
    data = batch(samples)
    signals = compute_signals(policy, data, config, no_tick)
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.0)
    optimiser_step(policy, optimizer, data, signals, chosen, config, no_tick)
    return [p.grad.clone() for p in policy.parameters() if p.grad is not None]


def assert_close(a: list[Tensor], b: list[Tensor], part: float = 1e-4) -> None:
    """No number differs by more than this part of the largest one."""
    scale = max(x.abs().max().item() for x in a)
    assert scale > 0
    for x, y in zip(a, b, strict=True):
        assert (x - y).abs().max().item() < part * scale


def taught(folder: Path, teacher_likes_it: bool) -> Sample:
    """A turn whose answer the hinted policy finds much more, or much less, likely than the plain policy does."""
    config = train_config(method="opd", estimator="sampled", w_opd=1.0)
    policy = Policy(folder, config)
    for n in range(100):
        # The likeliest answer of one of the two contexts is unlikely in the other.
        prompt, hint = ids(n, 8), f"hint {n}"
        at = 6
        context = prompt if not teacher_likes_it else _with_hint(policy, prompt, hint, at)
        answer = _greedy(policy, context, 4)
        candidate = sample(
            1, prompt_ids=prompt, response_ids=answer, hint=hint, hint_at=at, temperature=1.0, reward=0.0
        )
        teacher, old = _teacher_and_old(policy, candidate)
        if abs(teacher - old) > 3 and (teacher > old) == teacher_likes_it:
            return candidate
    raise AssertionError("no such turn among the candidates")


def _with_hint(policy: Policy, prompt: list[int], hint: str, at: int) -> list[int]:
    return hinted_prompt(prompt, hint, at, policy.tokenizer)


def _greedy(policy: Policy, context: list[int], length: int) -> list[int]:
    answer: list[int] = []
    with torch.no_grad():
        for _ in range(length):
            logits = policy.model(input_ids=torch.tensor([context + answer], device=policy.device)).logits[0, -1]
            answer.append(int(logits.argmax()))
    return answer


def _teacher_and_old(policy: Policy, one: Sample) -> tuple[float, float]:
    config = train_config(method="opd")
    (signals,) = compute_signals(policy, batch([one]), config, no_tick)
    assert signals.teacher is not None
    teacher = policy.token_logprobs(signals.teacher, signals.temperature, signals.tokens)
    return teacher.sum().item(), signals.old.sum().item()
