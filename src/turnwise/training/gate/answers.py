"""Answers that a candidate gives when it is asked: how likely they are, how long, and how much they repeat.

They are looked at and thrown away; nothing is ever trained on them. Sampled at temperature 1, in one batch, by a seed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from turnwise.training.policy import Policy

CHECK_EVERY = 8
"""Tokens between two looks at the clock."""


@dataclass(frozen=True, slots=True)
class GivenAnswer:
    """``ids`` [R] and their ``logprobs`` [R] under the weights that sampled them; ``ended`` by themselves."""

    ids: list[int]
    logprobs: list[float]
    ended: bool


@torch.no_grad()
def sample_answers(
    policy: Policy,
    prompts: Sequence[Sequence[int]],
    most: int,
    seed: int,
    time_s: float,
    alive: Callable[[], None] = lambda: None,
) -> list[GivenAnswer] | None:
    """An answer of at most ``most`` tokens to each prompt; None when that takes longer than ``time_s``.

    ``alive`` is called every few tokens and may raise.
    """
    began = time.monotonic()
    width = max(len(p) for p in prompts)
    ids = torch.tensor([[0] * (width - len(p)) + list(p) for p in prompts], device=policy.device)
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=policy.device)
    generator = torch.Generator(policy.device).manual_seed(seed)
    ends = torch.tensor(policy.ends, device=policy.device)
    cache: Any = None
    tokens: list[torch.Tensor] = []
    logprobs: list[torch.Tensor] = []
    going = torch.ones(len(prompts), dtype=torch.bool, device=policy.device)
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    for step in range(most):
        if step % CHECK_EVERY == 0:
            alive()
            if time.monotonic() - began > time_s:
                return None
        out = policy.model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        cache = out.past_key_values
        table = out.logits[:, -1].float().log_softmax(-1)
        chosen = torch.multinomial(table.exp(), 1, generator=generator)
        tokens.append(chosen.squeeze(-1))
        logprobs.append(table.gather(-1, chosen).squeeze(-1))
        going &= ~torch.isin(tokens[-1], ends)
        if not going.any():
            break
        ids, positions = chosen, positions[:, -1:] + 1
        mask = torch.cat([mask, mask.new_ones(len(prompts), 1)], dim=-1)
    return _cut(torch.stack(tokens, 1).tolist(), torch.stack(logprobs, 1).tolist(), set(policy.ends))


def _cut(rows: list[list[int]], logprobs: list[list[float]], ends: set[int]) -> list[GivenAnswer]:
    """Each row up to its first end token: what follows was sampled because others went on."""
    answers = []
    for ids, said in zip(rows, logprobs, strict=True):
        end = next((i + 1 for i, token in enumerate(ids) if token in ends), None)
        answers.append(GivenAnswer(ids[:end], said[:end], end is not None))
    return answers


def repetition(answers: Sequence[Sequence[int]]) -> float | None:
    """Share of the 4-grams of each answer that it has had before, over all answers; None without any 4-gram."""
    seen = [[tuple(a[i : i + 4]) for i in range(len(a) - 3)] for a in answers]
    total = sum(len(grams) for grams in seen)
    return 1 - sum(len(set(grams)) for grams in seen) / total if total else None


def mean_length(answers: Sequence[Sequence[int]], most: int) -> float:
    """Mean tokens of an answer, none counted as more than ``most``."""
    return sum(min(len(a), most) for a in answers) / len(answers)
