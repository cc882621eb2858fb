"""Which tokens a wish is made of: those that the gate does not hold against a policy that learned it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from turnwise.training.lessons.making import Lesson

MOST_WISHED = 16
"""A wish that more tokens would be of is one for another language or manner, and has none of its own."""


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
