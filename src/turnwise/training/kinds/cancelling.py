"""Cancelling: whether a later wish takes an earlier one back, or only says more about it.

"No more Cheers, please" and "a sentence before the Cheers is enough" are both about Cheers, and both are said of
answers that have it. The first one is to be unlearned from, and the second is not. The base model reads the two wishes
in one question, and a line through its states there, fitted to the labelled pairs in endings.tsv, tells the two kinds
apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from torch import Tensor

from turnwise.messages import saying
from turnwise.tokens.rendering import PromptRenderer
from turnwise.training.kinds.kept_states import states_of_labelled
from turnwise.training.kinds.lines import beyond, rows_of, states_after
from turnwise.training.policy import Policy
from turnwise.training.step import Tick

QUESTION = (
    'A person told an assistant earlier: "{earlier}". Now they say: "{later}". '
    "Do they still want what they said earlier? Answer with Yes or No."
)
ENDS, MORE = "no more of that, please", "yes, and one sentence is enough"
"""Said of each wish: the states lie around the middle of these two, which has what the wish itself is about."""


def cancels(policy: Policy, renderer: PromptRenderer, pairs: Sequence[tuple[str, str]], tick: Tick) -> list[bool]:
    """Whether the later wish of each pair (earlier, later) takes the earlier one back."""
    if not pairs:
        return []
    known, labels = labelled()
    states = _states(policy, renderer, known, tick, states_of_labelled)
    said = _states(policy, renderer, pairs, tick, states_after)
    return beyond(states, labels, [earlier for earlier, _ in known], said)


@cache
def labelled() -> tuple[list[tuple[str, str]], list[float]]:
    """The pairs (earlier, later) that the line is fitted to, and 1 for an ending or -1 for more about it."""
    rows = rows_of("endings.tsv")
    return [(earlier, later) for _, earlier, later in rows], [1.0 if kind == "ends" else -1.0 for kind, _, _ in rows]


def _states(
    policy: Policy,
    renderer: PromptRenderer,
    pairs: Sequence[tuple[str, str]],
    tick: Tick,
    read: Callable[[Policy, Sequence[Sequence[int]], Tick], Tensor],
) -> Tensor:
    """The states [n, D, H] after each pair, seen from the middle of an ending of that wish and more about it."""
    wishes = list(dict.fromkeys(earlier for earlier, _ in pairs))
    middles = [(earlier, said) for earlier in wishes for said in (ENDS, MORE)]
    asked = [QUESTION.format(earlier=earlier, later=later) for earlier, later in (*pairs, *middles)]
    prompts = [renderer.render([saying("user", text)], None).ids for text in asked]
    states, around = read(policy, prompts, tick).split([len(pairs), len(middles)])
    middle = around.unflatten(0, (len(wishes), 2)).mean(1)
    return states - middle[[wishes.index(earlier) for earlier, _ in pairs]]
