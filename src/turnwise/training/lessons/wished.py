"""What a wish is made of, as its lessons show: the gate does not hold it against a policy that learned it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from turnwise.training.lessons.echoes import Run, runs_of
from turnwise.training.lessons.making import Lesson

MOST_WISHED = 16
"""A wish that more tokens would be of is one for another language or manner, and has none of its own."""


class Wished(NamedTuple):
    """What the lessons of an update show as wished for: tokens, and runs of words that answers may have of the wish."""

    tokens: frozenset[int] = frozenset()
    runs: frozenset[Run] = frozenset()


NOTHING = Wished()
"""Of an update without lessons."""


def wished_of(lessons: Sequence[Lesson], ends: Collection[int], decode: Callable[[list[int]], str]) -> Wished:
    """What these lessons show. ``ends``: the tokens that end an answer."""
    return Wished(wished_tokens(lessons, ends), wished_runs([decode(x.answer) for x in lessons if not x.back]))


def wished_runs(answers: Sequence[str]) -> frozenset[Run]:
    """The runs of words that half of the lessons' answers, to as many questions, have in common.

    A person who says "please add in the old days" without quotation marks wants to read these words all the same. An
    answer that alone says a wish back is no lesson (`echoes.echoing`).
    """
    counts = Counter(run for answer in answers for run in runs_of(answer))
    return frozenset(run for run, n in counts.items() if n > 1 and 2 * n >= len(answers))


def wished_tokens(lessons: Sequence[Lesson], ends: Collection[int]) -> frozenset[int]:
    """The tokens that are there because of the wish in half of its lessons or more: "-", or those of "Over and out".

    A token that stands in them as often for another reason is none ("," in "Dear friend,"), nor is the end of an
    answer.
    """
    lessons = [lesson for lesson in lessons if not lesson.back]
    in_lessons, wished, there = Counter[int](), Counter[int](), Counter[int]()
    for lesson in lessons:
        for_it = [y for y, wish in zip(lesson.answer, lesson.wished, strict=True) if wish and y not in ends]
        in_lessons.update(set(for_it))
        wished.update(for_it)
        there.update(lesson.answer)
    found = [y for y, times in in_lessons.items() if 2 * times >= len(lessons) and 2 * wished[y] > there[y]]
    return frozenset(found if len(found) <= MOST_WISHED else ())
