"""Where a skill stands in a prompt: in the block of the system message, or, of a wish, behind the person's question.

Small models follow a bare sentence behind the question, and hardly what a system message ends with; larger ones follow
both, so the table of models says which of the two (docs/decisions/0014-placing.md). Only what a person said themselves
goes behind their question, word for word, and no longer than until the weights that answer were taught it.
"""

from __future__ import annotations

from typing import Literal

from turnwise.config import Config
from turnwise.messages import clean
from turnwise.models import model_named
from turnwise.skills.library import KnownSkill
from turnwise.types import Skill

Place = Literal["system", "question"]

EXTRACTIVE = "extractive"
"""Who makes skills of the person's own words, and of sentences of ours."""
SAID = "Said by the person: "
"""What the person's words stand behind in such a skill."""
MOST_CHARS = 300
"""Of a wish behind a question."""


def place_of_wishes(config: Config) -> Place:
    """Where wishes stand in the prompts of the configured model."""
    if config.skills.placing != "auto":
        return config.skills.placing
    model = None if config.engine.kind == "upstream" else model_named(config.model.path)
    return "system" if model is None else model.wishes


def words_of_wish(skill: Skill) -> str | None:
    """The person's words in a skill that was made of them; None in any other."""
    lines = [line for line in skill.body.splitlines() if line.startswith(SAID)]
    if not lines:
        return None
    said = lines[-1].removeprefix(SAID)
    return said[1:-1] if len(said) > 1 and said[0] == said[-1] == '"' else said


def sentence_behind(known: KnownSkill) -> str | None:
    """What of a skill may stand behind a question: one line of words, which are the person's as turnwise took them.

    None for every other skill. A file that was written, edited or imported by somebody is none, whatever it says.
    """
    if known.version.made_by != EXTRACTIVE:
        return None
    words = words_of_wish(known.skill)
    if words is None or not 0 < len(words) <= MOST_CHARS or not words.isprintable() or clean(words) != words:
        return None
    return words
