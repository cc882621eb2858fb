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
from torch.nn import functional as F

from turnwise.training.policy import NextLogits, Policy, sampling_temperature

CHECK_EVERY = 8
"""Tokens between two looks at the clock."""
AT_ONCE = 8192
PADDING = 128
"""Tokens of padding from which a CPU reads prompts in a pass of their own: a pass takes at least as long as some 100
tokens (the 0.5B model, one core)."""


@dataclass(frozen=True, slots=True)
class GivenAnswer:
    """``ids`` [R] and their ``logprobs`` [R] at the temperature they were sampled at; ``ended`` by themselves."""

    ids: list[int]
    logprobs: list[float]
    ended: bool


def sample_answers(
    policy: Policy,
    prompts: Sequence[Sequence[int]],
    most: int | Sequence[int],
    seed: int,
    *,
    temperature: float = 1.0,
    time_s: float = float("inf"),
    alive: Callable[[], None] = lambda: None,
    at_once: int = AT_ONCE,
    places: Sequence[int] | None = None,
) -> list[GivenAnswer] | None:
    """An answer of at most ``most`` tokens, of all prompts or of each one; None when that takes longer than ``time_s``.

    ``at_once`` bounds the tokens, padding and answers included, of the prompts that are answered together; a longer one
    is answered alone. At temperature 0 each token is the likeliest one, and log-probs are those at temperature 1.
    The n-th prompt draws the numbers of the n-th place of ``seed``, or of the place in ``places``, whoever else is
    asked: equal weights answer it with equal words.
    ``alive`` is called every few tokens and may raise; how long it takes itself does not count. The process's own
    random state stays as it is.
    """
    patience = _Patience(time_s, alive, policy.ranks.agree)
    places = range(len(prompts)) if places is None else places
    generators = [torch.Generator().manual_seed(seed * 1_000_003 + place) for place in places]
    found: dict[int, GivenAnswer] = {}
    mosts = [most] * len(prompts) if isinstance(most, int) else most
    for chosen in _together([len(p) for p in prompts], max(mosts, default=0), at_once):
        of, each = [prompts[i] for i in chosen], [mosts[i] for i in chosen]
        draws = [generators[i] for i in chosen]
        answers = _sample(policy, of, each, temperature, draws, patience)
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
    most: Sequence[int],
    temperature: float,
    generators: Sequence[torch.Generator],
    patience: _Patience,
) -> list[GivenAnswer] | None:
    """``prompts`` in the order of their lengths."""
    ids, mask, positions = _padded(policy, prompts)
    ends = set(policy.ends)
    cache: Any = None
    going = list(range(len(prompts)))  # whose answers are not ended, in the order of the rows
    answers: list[tuple[list[int], list[float]]] = [([], []) for _ in prompts]
    with policy.sampling() as next_logits:
        for step in range(max(most)):
            if step % CHECK_EVERY == 0 and patience.over():
                return None
            if step == 0 and policy.device.type == "cpu" and policy.reads_forks and policy.ranks.size == 1:
                logits, cache = _read(policy, next_logits, prompts)
            else:
                logits, cache = next_logits(ids, mask, positions, cache)
            table = (logits / sampling_temperature(temperature)).log_softmax(-1)
            drawn = [generators[n] for n in going]
            chosen = _draw(table, drawn) if temperature else table.argmax(-1, keepdim=True)
            said = table.gather(-1, chosen)
            for answer, token, logprob in zip(going, chosen.flatten().tolist(), said.flatten().tolist(), strict=True):
                answers[answer][0].append(token)
                answers[answer][1].append(logprob)
            ids, positions = chosen, positions[:, -1:] + 1
            mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=-1)
            said_so_far = [answers[answer][0] for answer in going]
            over = [said[-1] in ends or len(said) >= most[n] for said, n in zip(said_so_far, going, strict=True)]
            left = [row for row, is_over in enumerate(over) if not is_over]
            if not left:
                break
            if len(left) < len(going):
                which = torch.tensor(left, device=policy.device)
                cache.batch_select_indices(which)
                ids, positions, mask = ids[which], positions[which], mask[which]
                going = [going[row] for row in left]
    return [GivenAnswer(ids, logprobs, bool(ids) and ids[-1] in ends) for ids, logprobs in answers]


def _padded(policy: Policy, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor, Tensor]:
    """Ids, mask and positions [B, T] of prompts that are padded on the left."""
    width = max(len(p) for p in prompts)
    ids = torch.tensor([[0] * (width - len(p)) + list(p) for p in prompts], device=policy.device)
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=policy.device)
    return ids, mask, (mask.cumsum(-1) - 1).clamp(min=0)


def _read(policy: Policy, next_logits: NextLogits, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, Any]:
    """Logits [B, V] behind prompts in the order of their lengths, and the cache of all of them.

    They are read in passes of prompts of similar lengths, whose keys and values are then padded. Only for models that
    keep these of all of a text, as those do that read forks.
    """
    passes = [next_logits(*_padded(policy, some), None) for some in _similar(prompts)]
    cache = passes[0][1]
    for first, *others in zip(*(one.layers for _, one in passes), strict=True):
        first.keys = _joined([layer.keys for layer in (first, *others)])
        first.values = _joined([layer.values for layer in (first, *others)])
        for layer in others:
            layer.keys = layer.values = None  # what is joined is not kept twice
    return torch.cat([logits for logits, _ in passes]), cache


def _joined(parts: Sequence[Tensor]) -> Tensor:
    """Keys or values [B, heads, T, D], padded on the left to the width of the last ones."""
    if len(parts) == 1:
        return parts[0]
    width = parts[-1].shape[-2]
    return torch.cat([F.pad(part, (0, 0, width - part.shape[-2], 0)) for part in parts])


def _similar(prompts: Sequence[Sequence[int]]) -> list[list[Sequence[int]]]:
    """Prompts in the order of their lengths, taken apart where padding would be more than PADDING tokens."""
    groups: list[list[Sequence[int]]] = []
    for prompt in prompts:
        if groups and sum(len(prompt) - len(other) for other in groups[-1]) <= PADDING:
            groups[-1].append(prompt)
        else:
            groups.append([prompt])
    return groups


def _draw(table: Tensor, generators: Sequence[torch.Generator]) -> Tensor:
    """A token [B, 1] of each row of log-probs [B, V]: where the sum of probabilities passes a random number.

    `torch.multinomial` draws a number for each token of the vocabulary, which takes a third of a step's time.
    """
    summed = table.exp().cumsum(-1)
    random = torch.cat([torch.rand(1, generator=generator) for generator in generators])
    drawn = random.to(summed)[:, None] * summed[:, -1:]
    return torch.searchsorted(summed, drawn, right=True).clamp(max=table.shape[-1] - 1)


def repetition(answers: Sequence[Sequence[int]]) -> float | None:
    """Share of the 4-grams of each answer that it has had before, over all answers; None without any 4-gram."""
    seen = [[tuple(a[i : i + 4]) for i in range(len(a) - 3)] for a in answers]
    total = sum(len(grams) for grams in seen)
    return 1 - sum(len(set(grams)) for grams in seen) / total if total else None


def mean_length(answers: Sequence[Sequence[int]], most: int) -> float:
    """Mean tokens of an answer, none counted as more than ``most``."""
    return sum(min(len(a), most) for a in answers) / len(answers)
