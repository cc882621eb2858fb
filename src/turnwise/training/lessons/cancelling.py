"""Cancelling: whether a later wish takes an earlier one back, or only says more about it.

"No more Cheers, please" and "a sentence before the Cheers is enough" are both about Cheers, and both are said of
answers that have it. The first one is to be unlearned from, and the second is not. The base model reads the two wishes
in one question, and its state there is compared with its states for sentences that certainly do the one or the other.

Measured on 24 pairs in five languages that were written after it was made (12 of each kind): the 0.5B model takes 10 of
the 12 back and none of the others, the embedded one 6 and none.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from turnwise.messages import saying
from turnwise.tokens.rendering import PromptRenderer
from turnwise.training.policy import Policy

QUESTION = (
    'A person told an assistant earlier: "{earlier}". Now they say: "{later}". '
    "Do they still want what they said earlier? Answer with Yes or No."
)
DEPTH = 0.72
"""Behind this share of the model's blocks the states are compared; the last ones are about the next word."""
NEAREST = 3
ENDS = (
    "no more of that, please",
    "stop that",
    "without it from now on",
    "leave that out",
    "you can drop that again",
    "I don't want that any longer",
    "enough of that",
    "forget about that one",
)
SAYS_MORE = (
    "yes, and one sentence is enough",
    "exactly once, at the right place",
    "that with fewer words",
    "and put it on a line of its own",
    "the same but simpler, please",
    "that, and then a short answer",
    "a little different: make it friendlier",
    "right, also in long answers",
)


def cancels(policy: Policy, renderer: PromptRenderer, pairs: Sequence[tuple[str, str]]) -> list[bool]:
    """Whether the later wish of each pair (earlier, later) takes the earlier one back."""
    known: dict[str, tuple[Tensor, Tensor]] = {}
    found = []
    for earlier, later in pairs:
        if earlier not in known:
            ends, more = (_states(policy, renderer, earlier, some) for some in (ENDS, SAYS_MORE))
            known[earlier] = ends, more
        found.append(_nearer(_states(policy, renderer, earlier, [later]), *known[earlier]))
    return found


def _states(policy: Policy, renderer: PromptRenderer, earlier: str, later: Sequence[str]) -> Tensor:
    asked = [QUESTION.format(earlier=earlier, later=text) for text in later]
    return policy.states_within([renderer.render([saying("user", text)], None).ids for text in asked], DEPTH)


def _nearer(said: Tensor, ends: Tensor, more: Tensor) -> bool:
    """Whether a state [1, H] is nearer to the first set [n, H] than to the second, around what all of them share."""
    centre = torch.cat([ends, more]).mean(0)
    said, ends, more = (torch.nn.functional.normalize(states - centre, dim=-1) for states in (said, ends, more))
    to_ends, to_more = ((said @ states.T).topk(NEAREST).values.mean() for states in (ends, more))
    return bool(to_ends > to_more)
