"""Which skills stay from one turn of a conversation to the next: a prompt whose set stays is extended, not made anew.

"Yes, do that" names nothing that a skill could be found by, and means what was spoken of before. A set also stays where
it has all that the new question would find.
"""

from __future__ import annotations

from collections.abc import Sequence

from turnwise.skills.retrieval import ALWAYS, stems
from turnwise.types import Skill

FEW = 1
"""A question with at most so many words that tell something goes on with what was asked before: "yes, shorter"."""


def staying(question: str, found: Sequence[Skill], had: Sequence[Skill]) -> Sequence[Skill]:
    """The skills for a question, by name, where `found` fit it and `had` stand in the prompt that it goes on from."""
    before = {skill.name: skill for skill in had}
    fitting = [skill for skill in found if skill.category != ALWAYS]
    goes_on = not fitting and _goes_on(question)
    if not goes_on and not (fitting and all(skill.name in before for skill in found)):
        return found
    every = before | {skill.name: skill for skill in found}
    return [every[name] for name in sorted(every)]


def _goes_on(question: str) -> bool:
    """Whether words ask for nothing of their own. Never without spaces between words: a question is one word there."""
    asks = any(mark in question for mark in "?？؟") or any(c >= "\u2e80" for c in question)
    return not asks and len(stems(question)) <= FEW
