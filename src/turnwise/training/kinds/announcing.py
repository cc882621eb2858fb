"""Announcing: whether a label with a colon stands before something that a wish wants said beside the answer.

"Start with "Short answer:"" wants the answer behind its words, and "add "My advice:" with what you would do" does not:
a lesson that is the plain answer behind those words teaches to announce what is not said. The base model is asked what
is to be written there, and a line through its states, fitted to the labelled wishes in labels.tsv, tells the two apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from turnwise.messages import saying
from turnwise.tokens.rendering import PromptRenderer
from turnwise.training.kinds.kept_states import states_of_labelled
from turnwise.training.kinds.lines import margins, rows_of, states_after
from turnwise.training.policy import Policy
from turnwise.training.step import Tick

QUESTION = 'A person told an assistant how to answer: {wish}\nWhat is to be written behind "{label}"?'


def announces(policy: Policy, renderer: PromptRenderer, said: Sequence[tuple[str, str]], tick: Tick) -> list[float]:
    """Of each pair (label, wish that quotes it), by how much the label announces something beside the answer: above
    0 it does."""
    if not said:
        return []
    known, kinds = labelled()
    states = states_of_labelled(policy, _prompts(renderer, known), tick)
    asked = states_after(policy, _prompts(renderer, said), tick)
    centre = states.mean(0)
    return margins(states - centre, kinds, [label for label, _ in known], asked - centre)


@cache
def labelled() -> tuple[list[tuple[str, str]], list[float]]:
    """The pairs (label, wish) that the line is fitted to, and 1 where the label announces more or -1 where it heads the
    answer, or is not wanted, in the order of the file."""
    rows = rows_of("labels.tsv")
    return [(label, wish) for _, label, wish in rows], [1.0 if kind == "more" else -1.0 for kind, _, _ in rows]


def _prompts(renderer: PromptRenderer, said: Sequence[tuple[str, str]]) -> list[list[int]]:
    asked = [QUESTION.format(label=label, wish=wish) for label, wish in said]
    return [renderer.render([saying("user", text)], None).ids for text in asked]
