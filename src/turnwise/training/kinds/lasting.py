"""Lasting: whether what a person said is a wish about their other answers, too.

"Use metric units" is; "no, the capital is Canberra" is about one answer, and "not what I had in mind" names nothing.
Taught as a wish, either would be told to the model in questions that have nothing to do with it. A line through the
base model's states tells them apart, fitted to the labelled rows in said.tsv.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from turnwise.training.kinds.kept_states import states_of_labelled
from turnwise.training.kinds.lines import beyond, rows_of, states_after
from turnwise.training.lessons.wishes import ABOUT
from turnwise.training.policy import Policy
from turnwise.training.step import Tick

FOLDS = 10
"""The limit is found by lines that were fitted to all but every tenth row."""


def lasts(policy: Policy, hints: Sequence[str], tick: Tick) -> list[bool]:
    """Which of the hints are wishes about other answers, too."""
    if not hints:
        return []
    known, labels = labelled()
    states = states_of_labelled(policy, _prompts(policy, known), tick)
    said = states_after(policy, _prompts(policy, hints), tick)
    centre = states.mean(0)
    folds = [n % FOLDS for n in range(len(known))]
    return [not other for other in beyond(states - centre, labels, folds, said - centre)]


@cache
def labelled() -> tuple[list[str], list[float]]:
    """What people said, and -1 where it is a lasting wish or 1 where it is none, in the order of the file."""
    rows = rows_of("said.tsv")
    return [said for _, said in rows], [-1.0 if kind == "lasting" else 1.0 for kind, _ in rows]


def _prompts(policy: Policy, texts: Sequence[str]) -> list[list[int]]:
    encode = policy.tokenizer.encode
    return [encode(ABOUT.format(wish=text), add_special_tokens=False).ids for text in texts]
