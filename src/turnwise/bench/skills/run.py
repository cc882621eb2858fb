"""How well questions find their skills: recall at 5 of those that have one, and how many of the others get any.

Beside it stands what plain keyword matching finds: a skill that shares a telling word with the question.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from turnwise.bench.skills.labelled import LIBRARY, RELATED, UNRELATED
from turnwise.config.skills import SkillsConfig
from turnwise.skills.embedding import Embedder, embedder
from turnwise.skills.retrieval import SkillIndex, choose, stems
from turnwise.skills.skill_file import write
from turnwise.types import Skill

AT = 5
Finds = Callable[[str], Sequence[str]]


@dataclass(frozen=True, slots=True)
class RetrievalFigures:
    """Of one way to find skills on one part of the questions. All are shares but the counts."""

    way: str
    part: str
    related: int
    recall: float
    unrelated: int
    disturbed: float
    """Of the unrelated questions, those that got any skill."""
    chosen: float
    """Skills that a related question got, on average."""
    missed: list[str]
    wrong: list[str]


def library() -> list[Skill]:
    """The skills of the labelled questions. Their bodies say no more than their descriptions: nothing is given away."""
    return [
        write(name, said, "# How\n\n1. Do it as described above.\n2. Look at it again.", category)
        for name, (category, said) in LIBRARY.items()
    ]


def kept_aside(at: int) -> bool:
    """Whether the question at this place of a list is kept aside."""
    return at % 3 == 2


def measure(
    aside: bool, settings: SkillsConfig | None = None, vectors: Embedder | None = None
) -> list[RetrievalFigures]:
    """The figures of both ways, on the questions that are kept aside or on the others. Raises SkillError."""
    with_settings = settings or SkillsConfig()
    index = SkillIndex(library(), vectors or embedder(with_settings))

    def hybrid(question: str) -> list[str]:
        found = choose(index, question, with_settings.threshold, AT, with_settings.max_tokens, "hybrid")
        return [skill.name for skill in found]

    return [_figures("word vectors and BM25", hybrid, aside), _figures("plain keywords", _by_keywords(index), aside)]


def _by_keywords(index: SkillIndex) -> Finds:
    words = {skill.name: set(stems(f"{skill.name} {skill.description}")) for skill in index.skills}

    def find(question: str) -> list[str]:
        asked = set(stems(question))
        shared = sorted((-len(asked & of_skill), name) for name, of_skill in words.items() if asked & of_skill)
        return [name for _, name in shared[:AT]]

    return find


def _figures(way: str, finds: Finds, aside: bool) -> RetrievalFigures:
    related = [pair for at, pair in enumerate(RELATED) if kept_aside(at) == aside]
    unrelated = [question for at, question in enumerate(UNRELATED) if kept_aside(at) == aside]
    found = [finds(question) for question, _ in related]
    missed = [question for (question, name), names in zip(related, found, strict=True) if name not in names]
    wrong = [question for question in unrelated if finds(question)]
    return RetrievalFigures(
        way,
        "kept aside" if aside else "chosen on",
        len(related),
        1 - len(missed) / len(related),
        len(unrelated),
        len(wrong) / len(unrelated),
        sum(map(len, found)) / len(found),
        missed,
        wrong,
    )
