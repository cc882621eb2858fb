"""What tokenising a prompt costs by itself: the part of an added time that every token-exact gateway has to pay.

Measured with the served model's own renderer in the bench's process, warm, before any arm starts.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterable
from pathlib import Path
from statistics import median

from turnwise.bench.latency.arms import Said
from turnwise.bench.latency.conversations import TURNS, Histories
from turnwise.errors import TurnwiseError
from turnwise.messages import history_from_chat
from turnwise.tokens.rendering import PromptRenderer, load_renderer

PROMPTS = 20
LONG_PROMPT = 200_000
LONG_PROMPTS = 5
"""How many different prompts of a size are measured at least; fewer of the long ones."""


def measure_tokenising(model: Path, said: Said, sizes: Iterable[int]) -> dict[tuple[int, bool], float]:
    """Median seconds by the prompt's size in bytes and whether its history grows. Raises TurnwiseError.

    A single question is rendered whole; of a growing history, only the new message is, behind the ids known before.
    """
    renderer = load_renderer(model)
    measured: dict[tuple[int, bool], float] = {}
    for size in sizes:
        prompts = LONG_PROMPTS if size >= LONG_PROMPT else PROMPTS
        measured[size, False] = median(_whole(renderer, said, size, prompts))
        measured[size, True] = median(_bridged(renderer, said, size, prompts))
    return measured


def _whole(renderer: PromptRenderer, said: Said, size: int, prompts: int) -> list[float]:
    spent = []
    for body in itertools.islice(Histories(size, False, said.text), 1 + prompts):
        messages = history_from_chat(json.loads(body)["messages"])
        started = time.perf_counter()
        renderer.render(messages, None)
        spent.append(time.perf_counter() - started)
    return spent[1:]  # the first one warms up


def _bridged(renderer: PromptRenderer, said: Said, size: int, prompts: int) -> list[float]:
    answered = [token for token, _ in said.pieces]
    bodies = iter(Histories(size, True, said.text))
    spent: list[float] = []
    while len(spent) < prompts:
        opening, *continued = (
            history_from_chat(json.loads(body)["messages"]) for body in itertools.islice(bodies, TURNS)
        )
        before = renderer.render(opening, None)
        for messages in continued:
            started = time.perf_counter()
            prompt = renderer.bridge(before.ids, answered, before.hint_at, messages[-1:], None)
            spent.append(time.perf_counter() - started)
            if prompt is None:
                raise TurnwiseError("the latency bench needs a model whose prompts can be bridged")
            before = prompt
    return spent
