"""Asks the policy: answers that the weights give to prompts, with how likely each token was to them.

They are looked at, or shown to the policy as lessons; turns of a person are never sampled here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from turnwise.training.policy import Policy, sampling_temperature

CHECK_EVERY = 8
"""Tokens between two looks at the clock."""
AT_ONCE = 8192


@dataclass(frozen=True, slots=True)
class GivenAnswer:
    """``ids`` [R] and their ``logprobs`` [R] at the temperature they were sampled at; ``ended`` by themselves."""

    ids: list[int]
    logprobs: list[float]
    ended: bool


def sample_answers(
    policy: Policy,
    prompts: Sequence[Sequence[int]],
    most: int,
    seed: int,
    *,
    temperature: float = 1.0,
    time_s: float = float("inf"),
    alive: Callable[[], None] = lambda: None,
    at_once: int = AT_ONCE,
) -> list[GivenAnswer] | None:
    """An answer of at most ``most`` tokens to each prompt; None when that takes longer than ``time_s``.

    ``at_once`` bounds the tokens, padding and answers included, of the prompts that are answered together; a longer one
    is answered alone. At temperature 0 each token is the likeliest one, and log-probs are those at temperature 1.
    ``alive`` is called every few tokens and may raise; how long it takes itself does not count. The process's own
    random state stays as it is.
    """
    patience = _Patience(time_s, alive, policy.ranks.agree)
    generator = torch.Generator(policy.device).manual_seed(seed)
    found: dict[int, GivenAnswer] = {}
    for chosen in _together([len(p) for p in prompts], most, at_once):
        answers = _sample(policy, [prompts[i] for i in chosen], most, temperature, generator, patience)
        if answers is None:
            return None
        found |= dict(zip(chosen, answers, strict=True))
    return [found[i] for i in range(len(prompts))]


class _Patience:
    """How long sampling may take. What `alive` takes, hours while the person is there, does not count."""

    def __init__(self, time_s: float, alive: Callable[[], None], agree: Callable[[bool], bool]) -> None:
        self._deadline = time.monotonic() + time_s
        self._alive, self._agree = alive, agree

    def over(self) -> bool:
        asked = time.monotonic()
        self._alive()
        now = time.monotonic()
        self._deadline += now - asked
        return self._agree(now > self._deadline)


def _together(lengths: Sequence[int], most: int, at_once: int) -> Iterator[list[int]]:
    """Indices of prompts that are answered together, the shortest first: one width fits all of a group."""
    group: list[int] = []
    for i in sorted(range(len(lengths)), key=lengths.__getitem__):
        if group and (len(group) + 1) * (lengths[i] + most) > at_once:
            yield group
            group = []
        group.append(i)
    if group:
        yield group


@torch.no_grad()
def _sample(
    policy: Policy,
    prompts: Sequence[Sequence[int]],
    most: int,
    temperature: float,
    generator: torch.Generator,
    patience: _Patience,
) -> list[GivenAnswer] | None:
    width = max(len(p) for p in prompts)
    ids = torch.tensor([[0] * (width - len(p)) + list(p) for p in prompts], device=policy.device)
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=policy.device)
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    ends = set(policy.ends)
    cache: Any = None
    going = list(range(len(prompts)))  # whose answers are not ended, in the order of the rows
    answers: list[tuple[list[int], list[float]]] = [([], []) for _ in prompts]
    with policy.sampling() as next_logits:
        for step in range(most):
            if step % CHECK_EVERY == 0 and patience.over():
                return None
            logits, cache = next_logits(ids, mask, positions, cache)
            table = (logits / sampling_temperature(temperature)).log_softmax(-1)
            chosen = _draw(table, generator) if temperature else table.argmax(-1, keepdim=True)
            said = table.gather(-1, chosen)
            for answer, token, logprob in zip(going, chosen.flatten().tolist(), said.flatten().tolist(), strict=True):
                answers[answer][0].append(token)
                answers[answer][1].append(logprob)
            ids, positions = chosen, positions[:, -1:] + 1
            mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=-1)
            left = [row for row, answer in enumerate(going) if answers[answer][0][-1] not in ends]
            if not left:
                break
            if len(left) < len(going):
                which = torch.tensor(left, device=policy.device)
                cache.batch_select_indices(which)
                ids, positions, mask = ids[which], positions[which], mask[which]
                going = [going[row] for row in left]
    return [GivenAnswer(ids, logprobs, bool(ids) and ids[-1] in ends) for ids, logprobs in answers]


def _draw(table: Tensor, generator: torch.Generator) -> Tensor:
    """A token [B, 1] of each row of log-probs [B, V]: where the sum of probabilities passes a random number.

    `torch.multinomial` draws a number for each token of the vocabulary, which takes a third of a step's time.
    """
    summed = table.exp().cumsum(-1)
    drawn = torch.rand(len(table), 1, generator=generator, device=table.device) * summed[:, -1:]
    return torch.searchsorted(summed, drawn, right=True).clamp(max=table.shape[-1] - 1)


def repetition(answers: Sequence[Sequence[int]]) -> float | None:
    """Share of the 4-grams of each answer that it has had before, over all answers; None without any 4-gram."""
    seen = [[tuple(a[i : i + 4]) for i in range(len(a) - 3)] for a in answers]
    total = sum(len(grams) for grams in seen)
    return 1 - sum(len(set(grams)) for grams in seen) / total if total else None


def mean_length(answers: Sequence[Sequence[int]], most: int) -> float:
    """Mean tokens of an answer, none counted as more than ``most``."""
    return sum(min(len(a), most) for a in answers) / len(answers)
