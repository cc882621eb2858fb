"""Which conversations are kept aside, and which share an optimiser step. Pure functions, fixed by a seed."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence


def set_aside(digests: Sequence[bytes], share: float, seed: int) -> tuple[list[int], list[int]]:
    """Indices of the conversations to learn, and of those that are only asked how likely they are.

    About ``share`` of them are set aside, at least one where there are two, never all. By their contents: one that
    stands in the file twice is on one side with its double, or its loss would say nothing.
    """
    kinds = sorted(set(digests), key=lambda d: hashlib.sha256(str(seed).encode() + d).digest())
    count = min(len(kinds) - 1, max(1, round(share * len(kinds)))) if share > 0 else 0
    aside = set(kinds[:count])
    learn = [i for i, digest in enumerate(digests) if digest not in aside]
    return learn, [i for i, digest in enumerate(digests) if digest in aside]


def steps_of_epoch(tokens: Sequence[int], batch_tokens: int, seed: int, epoch: int) -> list[list[int]]:
    """Indices of the conversations of each step: a shuffle, cut into steps of about ``batch_tokens`` tokens.

    As evenly as it goes: a small rest would move the weights as far as a whole step does. ``tokens[i]`` are those of
    conversation i, which stays in one step.
    """
    order = list(range(len(tokens)))
    # sha256, because Python's own hash of a tuple is not promised to stay the same between releases.
    random.Random(hashlib.sha256(f"sft/{seed}/{epoch}".encode()).digest()).shuffle(order)
    total = sum(tokens)
    parts = max(1, -(-total // batch_tokens))
    steps: list[list[int]] = [[] for _ in range(parts)]
    before = 0
    for i in order:
        steps[min(parts - 1, (2 * before + tokens[i]) * parts // (2 * total))].append(i)  # where its middle falls
        before += tokens[i]
    return [step for step in steps if step]


def all_steps(tokens: Sequence[int], batch_tokens: int, seed: int, epochs: int) -> list[list[int]]:
    return [step for epoch in range(epochs) for step in steps_of_epoch(tokens, batch_tokens, seed, epoch)]
