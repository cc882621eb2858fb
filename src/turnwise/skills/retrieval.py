"""Which skills fit a question: by meaning (word vectors) and by words (BM25), above a threshold and within a budget.

Pure functions of the library and the question, and the order of what is chosen is by name: one set of skills is always
the same text. A skill that is named outright is always found, so that there is a question for each.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from turnwise.errors import SkillError
from turnwise.patterns import has_word, pattern
from turnwise.types import Skill

if TYPE_CHECKING:  # who only wants the words of a text needs no vectors
    from turnwise.skills.embedding import Embedder
    from turnwise.skills.vectors import Vectors

_WORD = pattern(r"[^\W_]+")
_ENDINGS = ("ations", "ation", "ings", "ing", "ies", "ed", "es", "s", "e", "y")
_LIST = """
    a about after all also am an and any are as at be been but by can could did do does for from get give had
    has have he help her here him his how i if in into is it its just know let like make me more most my need no
    not now of on one or our out please s she should show so some t tell than that the their them then there
    these they thing this to too up us use very want was way we were what when where which who why will with
    would you your
"""
_EMPTY = frozenset(_LIST.split())
"""Words that tell nothing of what is asked."""
K1, B = 1.2, 0.6
"""BM25: how soon a repeated word counts no more, and how much a long text is held against it."""
MEANING, WORDS = 0.8, 0.2
"""How much each counts. Measured with `turnwise bench skills`."""
BYTES_PER_TOKEN = 3
ALWAYS = "always"
"""The category of what holds for every answer, whatever is asked, as wishes of the person about its form do."""
MOST_ALWAYS = 6
"""Of them in one prompt, those first that fit the question best. They have `skills.max_tokens` for themselves."""
NAMED = 2.0
"""The score of a skill that is named outright: above any other."""


@dataclass(frozen=True, slots=True)
class Scored:
    """A skill and how well it fits: 0 to 1, or NAMED."""

    skill: Skill
    score: float


class SkillIndex:
    """The skills of one library, made ready to be searched."""

    def __init__(self, skills: Sequence[Skill], vectors: Embedder) -> None:
        self.skills = sorted(skills, key=lambda skill: skill.name)
        self._vectors = vectors
        self._meanings: Vectors | None = None
        self.fault = ""
        """Why meaning does not count at present: a sentence, or nothing."""
        self._near("")
        self._words = Bm25([_about(skill) for skill in self.skills])

    def scores(self, question: str) -> list[Scored]:
        """Every skill with its score, best first."""
        if not self.skills or not question:
            return []
        near = self._near(question)
        shared = self._words.scores(question)
        found = [
            Scored(skill, NAMED if _named(skill.name, question) else score(float(near[at]), shared[at]))
            for at, skill in enumerate(self.skills)
        ]
        return sorted(found, key=lambda one: (-one.score, one.skill.name))

    def _near(self, question: str) -> Sequence[float]:
        """How near each skill's meaning is; nothing is near while the vectors cannot be had."""
        try:
            if self._meanings is None:
                self._meanings = self._vectors.embed([_meaning(skill) for skill in self.skills])
            near: list[float] = []
            if question:
                near = (self._meanings @ self._vectors.embed([question])[0]).tolist()
        except (SkillError, ValueError) as e:  # a model whose vectors have another length than before
            self.fault = str(e)
            return [0.0] * len(self.skills)
        self.fault = ""
        return near


def score(near: float, shared: float) -> float:
    """One figure of the likeness of meaning (a cosine) and of the share of the question's words."""
    return MEANING * max(near, 0.0) + WORDS * shared


def choose(
    index: SkillIndex,
    question: str,
    threshold: float,
    most: int,
    max_tokens: int,
    mode: str,
    without: Collection[str] = (),
) -> list[Skill]:
    """The skills for a question, by name. The best one is taken however long it is; the others while there is room.

    With the mode "template" those of a category that the question names need no score. Those of the category "always"
    are there for every question, and take no room of the others. Those named in ``without`` are left out.
    """
    ranked = [one for one in index.scores(question) if one.skill.name not in without]
    fitting = [one.skill for one in ranked if one.skill.category != ALWAYS and _fits(one, question, threshold, mode)]
    able = [skill for skill in index.skills if skill.name not in without]
    standing = [skill for skill in able if skill.category == ALWAYS] if not ranked else [
        one.skill for one in ranked if one.skill.category == ALWAYS
    ]  # fmt: skip
    chosen = [*_within(standing, MOST_ALWAYS, max_tokens), *_within(fitting, most, max_tokens)]
    return sorted(chosen, key=lambda skill: skill.name)


def _fits(one: Scored, question: str, threshold: float, mode: str) -> bool:
    if one.score >= NAMED:
        return True
    by_category = mode == "template" and one.skill.category is not None
    return _has_category(one.skill, question) if by_category else one.score >= threshold


def _within(skills: Sequence[Skill], most: int, max_tokens: int) -> list[Skill]:
    """The first of them, however long it is, and the others while there is room."""
    chosen: list[Skill] = []
    room = max_tokens * BYTES_PER_TOKEN
    for skill in skills:
        size = len(skill.body.encode())
        if len(chosen) < most and (size <= room or not chosen):
            chosen.append(skill)
            room -= size
    return chosen


class Bm25:
    """Okapi BM25 over short texts, as the share of what the question's words could score at most: 0 to 1."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._counts = [Counter(stems(text)) for text in texts]
        self._lengths = [sum(counts.values()) for counts in self._counts]
        self._mean = max(sum(self._lengths) / max(len(texts), 1), 1.0)
        self._in = Counter(stem for counts in self._counts for stem in counts)

    def scores(self, question: str) -> list[float]:
        """Of each text."""
        asked = set(stems(question))
        rarity = {stem: math.log(1 + (len(self._counts) - n + 0.5) / (n + 0.5)) for stem in asked
                  for n in (self._in[stem],)}  # fmt: skip
        most = sum(rarity.values()) * (K1 + 1) or 1.0
        return [
            sum(rarity[stem] * self._weight(counts[stem], length) for stem in asked if counts[stem]) / most
            for counts, length in zip(self._counts, self._lengths, strict=True)
        ]

    def _weight(self, count: int, length: int) -> float:
        return count * (K1 + 1) / (count + K1 * (1 - B + B * length / self._mean))


def stems(text: str) -> list[str]:
    """The words of a text that tell something, without their endings: whole words, so no "test" in "latest"."""
    words = (word.lower() for word in _WORD.findall(text))
    return [_stem(word) for word in words if word not in _EMPTY]


def _stem(word: str) -> str:
    ending = next((end for end in _ENDINGS if word.endswith(end) and len(word) - len(end) >= 3), "")
    return word.removesuffix(ending)


def _about(skill: Skill) -> str:
    return f"{skill.name} {skill.name} {skill.description} {skill.description} {skill.category or ''} {skill.body}"


def _meaning(skill: Skill) -> str:
    """What a skill is for, without the details of how."""
    return f"{skill.name.replace('-', ' ')}. {skill.description}"


def _named(name: str, question: str) -> bool:
    """Whether a question names a skill: by a name that is no common word, or as "the skill NAME"."""
    asked = question.lower()
    return has_word(asked, name if "-" in name else f"skill {name}", joining="-")


def _has_category(skill: Skill, question: str) -> bool:
    return set(stems((skill.category or "").replace("-", " "))) <= set(stems(question))
