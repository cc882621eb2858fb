"""Cancelling: whether a later wish takes an earlier one back, or only says more about it.

"No more Cheers, please" and "a sentence before the Cheers is enough" are both about Cheers, and both are said of
answers that have it. The first one is to be unlearned from, and the second is not. The base model reads the two wishes
in one question, and a line through its states there tells the two kinds apart. The line is fitted to the labelled pairs
in endings.tsv, in the states of whichever model is trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files

import torch
from torch import Tensor

from turnwise.messages import saying
from turnwise.tokens.rendering import PromptRenderer
from turnwise.training.policy import Policy
from turnwise.training.step import Tick

QUESTION = (
    'A person told an assistant earlier: "{earlier}". Now they say: "{later}". '
    "Do they still want what they said earlier? Answer with Yes or No."
)
DEPTHS = 0.6, 0.8
"""Behind these shares of the model's blocks its states are read; the last ones are about the next word."""
ENDS, MORE = "no more of that, please", "yes, and one sentence is enough"
"""Said of each wish: the states lie around the middle of these two, which has what the wish itself is about."""
AT_ONCE = 32
"""Prompts that are read between two ticks."""
RIDGE = 0.3
"""Weight of the line's squared length; measured with it."""
MISTAKEN = 0.05
"""Share of the labelled additions that may be taken for endings: what is taken back is unlearned."""


def cancels(policy: Policy, renderer: PromptRenderer, pairs: Sequence[tuple[str, str]], tick: Tick) -> list[bool]:
    """Whether the later wish of each pair (earlier, later) takes the earlier one back."""
    if not pairs:
        return []
    known, labels = labelled()
    states, said = (_states(policy, renderer, some, tick) for some in (known, pairs))
    kinds = torch.tensor(labels)
    return (_sides(states, kinds, said) > _least(states, kinds, [earlier for earlier, _ in known])).tolist()


@cache
def labelled() -> tuple[list[tuple[str, str]], list[float]]:
    """The pairs (earlier, later) that the line is fitted to, and 1 for an ending or -1 for more about it."""
    text = files("turnwise.training.lessons").joinpath("endings.tsv").read_text(encoding="utf-8")
    rows = [line.split("\t") for line in text.splitlines()[1:]]
    return [(earlier, later) for _, earlier, later in rows], [1.0 if kind == "ends" else -1.0 for kind, _, _ in rows]


def _states(policy: Policy, renderer: PromptRenderer, pairs: Sequence[tuple[str, str]], tick: Tick) -> Tensor:
    """The states [n, D, H] after each pair, seen from the middle of an ending of that wish and more about it."""
    wishes = list(dict.fromkeys(earlier for earlier, _ in pairs))
    middles = [(earlier, said) for earlier in wishes for said in (ENDS, MORE)]
    asked = [QUESTION.format(earlier=earlier, later=later) for earlier, later in (*pairs, *middles)]
    prompts = [renderer.render([saying("user", text)], None).ids for text in asked]
    found = []
    for start in range(0, len(prompts), AT_ONCE):
        tick("comparing", start, len(prompts))
        found.append(policy.states_within(prompts[start : start + AT_ONCE], DEPTHS))
    states, around = torch.cat(found).split([len(pairs), len(middles)])
    middle = around.unflatten(0, (len(wishes), 2)).mean(1)
    return states - middle[[wishes.index(earlier) for earlier, _ in pairs]]


def _sides(states: Tensor, labels: Tensor, said: Tensor) -> Tensor:
    """On which side [m] of a line through labelled states [n, D, H] others [m, D, H] lie.

    Ridge regression in dual form; each depth has the same scale.
    """
    scale = states.double().std(0).mean(-1, keepdim=True)
    known, others = ((each.double() / scale).flatten(1) for each in (states, said))
    products, likeness = (each @ known.T / known.shape[1] for each in (known, others))
    weights = torch.linalg.solve(products + RIDGE * torch.eye(len(known), dtype=torch.double), labels.double())
    return likeness @ weights


def _least(states: Tensor, labels: Tensor, wishes: Sequence[str]) -> Tensor:
    """How far on the side of the endings an ending is: as far as few additions are, seen by a line of other wishes."""
    sides = torch.zeros(len(labels), dtype=torch.double)
    for wish in set(wishes):
        own = torch.tensor([wish == other for other in wishes])
        sides[own] = _sides(states[~own], labels[~own], states[own])
    return sides[labels < 0].quantile(1 - MISTAKEN)
