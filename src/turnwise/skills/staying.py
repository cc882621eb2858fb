"""Which skills stay from one turn of a conversation to the next: a prompt whose set stays is extended, not made anew.

"Yes, do that" names nothing that a skill could be found by, and means what was spoken of before. A set also stays where
it has all that the new question would find.
"""

from __future__ import annotations

from collections.abc import Sequence

from turnwise.skills.retrieval import stems
from turnwise.types import Skill

FEW = 1
"""A question with at most so many words that tell something goes on with what was asked before: "yes, shorter"."""


def staying(question: str, found: Sequence[Skill], had: Sequence[Skill]) -> Sequence[Skill]:
    """The skills for a question, by name, where `found` fit it and `had` stand in the prompt that it goes on from."""
    names = {skill.name for skill in had}
    covered = bool(found) and all(skill.name in names for skill in found)
    goes_on = not found and len(stems(question)) <= FEW
    return had if had and (covered or goes_on) else found
