"""Batching: which samples share an optimiser step, a row of tokens and a forward pass.

Pure functions on token ids. Turns of one session whose ids extend one another become one row, so that a session of n
turns is read once and not n times; rows are then grouped into padded micro-batches of bounded size. None of this
changes the loss: its weights are those of the whole optimiser step.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass

from turnwise.types import Sample


@dataclass(frozen=True, slots=True)
class Span:
    """The response of sample ``sample`` (an index into the batch) stands at ``ids[start:end]`` of its row."""

    sample: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Row:
    """One sequence of token ids and the responses in it. The logits of position p predict the id at p + 1."""

    ids: list[int]
    spans: list[Span]


def row_of(sample: int, prompt_ids: Sequence[int], response_ids: Sequence[int]) -> Row:
    """A row with one response: the two id lists joined as ids, never as text."""
    return Row([*prompt_ids, *response_ids], [Span(sample, len(prompt_ids), len(prompt_ids) + len(response_ids))])


def merge_prefixes(samples: Sequence[Sample], chosen: Sequence[int]) -> list[Row]:
    """Rows for the samples at ``chosen``, one row for each chain of turns whose ids extend one another.

    A turn joins a row of its session when that row's ids, all of them, open the turn's prompt: then causal attention
    gives its tokens the very same log-probs as a row of its own would. Anything else begins a new row.
    """
    open_rows: dict[str, list[Row]] = {}
    for i in sorted(chosen, key=lambda i: (samples[i].session_id, len(samples[i].prompt_ids), i)):
        sample = samples[i]
        alone = row_of(i, sample.prompt_ids, sample.response_ids)
        rows = open_rows.setdefault(sample.session_id, [])
        for position, row in enumerate(rows):
            if sample.prompt_ids[: len(row.ids)] == row.ids:
                rows[position] = Row(alone.ids, row.spans + alone.spans)
                break
        else:
            rows.append(alone)
    return [row for rows in open_rows.values() for row in rows]


def padded_tokens(rows: Sequence[Row]) -> int:
    """The tokens of a forward pass over these rows, padding included."""
    return len(rows) * max(len(row.ids) for row in rows)


def microbatches(rows: Sequence[Row], max_tokens: int) -> list[list[Row]]:
    """Rows of similar length together, each group at most ``max_tokens`` with padding (a longer row goes alone)."""
    groups: list[list[Row]] = []
    for row in sorted(rows, key=lambda r: len(r.ids)):
        # Ascending order: the newest row is the longest, so it sets the padded width of its group.
        if groups and len(row.ids) * (len(groups[-1]) + 1) <= max_tokens:
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups


def minibatches(count: int, size: int, seed: int, batch: int, epoch: int) -> list[list[int]]:
    """Sample indices of each optimiser step of an epoch: a shuffle fixed by its arguments, cut as evenly as it goes.

    Even parts, because a remainder of one sample would move the weights as far as a full step does.
    """
    # sha256, because Python's own hash of a tuple is not promised to stay the same between releases.
    digest = hashlib.sha256(f"{seed}/{batch}/{epoch}".encode()).digest()
    order = list(range(count))
    random.Random(digest).shuffle(order)
    parts = -(-count // size)
    return [order[count * p // parts : count * (p + 1) // parts] for p in range(parts)]
