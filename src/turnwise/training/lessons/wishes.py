"""Standing wishes: what the person asked for that is true of their other turns, too.

A hint was said about one answer. "Use metric units" holds for the next one as well, until the person says otherwise:
of two hints about the same thing the later one counts, so that a wish is taken back by its opposite.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

ABOUT = 'The wish "{wish}" in one word is about'
"""The state after this text says what a wish is about, whichever way it goes: "be brief" and "longer, please" are near.

Measured on 25 wishes of 12 kinds: pairs about one thing are told from others with an area under the curve of 0.91 by
the 0.5B model's last layer and 0.86 by the embedded model's; 0.83 and 0.72 without the words around the wish.
"""
SAME = 0.3
"""Cosine between centred states from which two wishes are about the same thing (5 % of other pairs reach it)."""
NO_WISH, NEAREST = 0.4, 3
"""By how much nearer, on average over so many neighbours, a hint lies to rejections than to wishes, to be no wish.

Of 15 rejections and 20 wishes that are none of these, 13 and 0 are beyond it by the 0.5B model's states, 10 and 0 by
the embedded model's.
"""
MOST = 3
"""Wishes that stand at once. A small model told more of them follows none."""
LONGEST = 400
"""A hint with more characters than this is a task, or something pasted, rather than a wish."""


def standing(hints: Sequence[str], embed: Callable[[Sequence[str]], Tensor]) -> list[str]:
    """The wishes that stand, oldest first, of hints in the order in which they were said.

    ``embed`` gives a state [n, H] for each of n texts.
    """
    known = list(dict.fromkeys(reversed(wishes_among(hints))))
    if not known:
        return []
    said, ordinary, rejections = embed([ABOUT.format(wish=h) for h in [*known, *ORDINARY, *REJECTIONS]]).split(
        [len(known), len(ORDINARY), len(REJECTIONS)]
    )
    rejected = _rejected(said, ordinary, rejections)
    states = torch.cat([said, ordinary])
    states = torch.nn.functional.normalize(states - states.mean(0), dim=-1)
    chosen: list[int] = []
    for i in range(len(known)):
        if rejected[i]:
            continue
        if all(float(states[i] @ states[j]) < SAME for j in chosen):
            chosen.append(i)
        if len(chosen) == MOST:
            break
    return [known[i] for i in reversed(chosen)]


def _rejected(said: Tensor, ordinary: Tensor, rejections: Tensor) -> list[bool]:
    """Whether a hint only says that an answer was not it: "no, not like this" names nothing to do instead."""
    centre = torch.cat([ordinary, rejections]).mean(0)
    said, ordinary, rejections = (
        torch.nn.functional.normalize(states - centre, dim=-1) for states in (said, ordinary, rejections)
    )
    to_rejections, to_wishes = ((said @ states.T).topk(NEAREST).values.mean(1) for states in (rejections, ordinary))
    return (to_rejections - to_wishes > NO_WISH).tolist()


def wishes_among(hints: Sequence[str]) -> list[str]:
    """The hints that may be wishes, in one layout."""
    return [h for h in (" ".join(hint.split()) for hint in hints) if 0 < len(h) <= LONGEST]


ORDINARY = (
    "be more polite",
    "show me code",
    "answer in French",
    "use bullet points",
    "keep it short",
    "explain every step",
    "tell me your sources",
    "no emojis, please",
    "use my first name",
    "give prices in euros",
)
"""Wishes of ten kinds: the mean state of a few wishes of one person would be what they share, and be taken away."""
REJECTIONS = (
    "no, not like this",
    "that's not it",
    "wrong",
    "not what i asked for",
    "try again",
    "hm, no",
    "that is not right",
    "i don't like it",
    "still not what i meant",
    "bad answer",
)
"""What people say of an answer that was not it, without a wish."""
