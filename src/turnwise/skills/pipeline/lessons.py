"""Lessons from the failures of pipelines: what a stage stumbled over becomes a skill, in a fixed form, without a model.

Every word about the failure is the pipeline's own, cut and quoted; it may stem from pages and tools, so that a lesson
waits for a person's review and stands in no prompt before that.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from turnwise.patterns import pattern
from turnwise.skills.pipeline.runs import PipelineEvent, PipelineRun
from turnwise.skills.skill_file import MOST_OF_NAME, write
from turnwise.types import Skill

MOST_LESSONS = 50
"""Of one call: those seen most often."""
MOST_OF_STAGE = 100
"""Different failures of one stage that are looked at: each message is compared with all of them."""
ALIKE = 0.5
"""Share of their words that two messages of one stage have in common when they tell the same."""
MOST_QUOTED = 240
"""Characters of a message in a skill."""
MOST_IN_TITLE = 60
CATEGORY = "pipeline"

_WORD = pattern(r"[A-Za-z_]{2,60}")
_PLACES = pattern(r"(?:/|\b0x)[\w./-]{1,200}")
_UNFIT = pattern(r"[^a-z0-9]+")


@dataclass(slots=True)
class StageLesson:
    """Messages of one stage that tell the same. ``runs``: the places of those in which it was seen."""

    pipeline: str
    stage: str
    words: frozenset[str]
    message: str
    kinds: Counter[str] = field(default_factory=Counter)
    runs: set[int] = field(default_factory=set)
    fixes: list[str] = field(default_factory=list)


def lessons_of(runs: Sequence[PipelineRun]) -> list[StageLesson]:
    """What runs stumbled over, the same of one stage together, most often seen first."""
    stages: dict[tuple[str, str], list[StageLesson]] = {}
    for number, run in enumerate(runs):
        for stage in run.stages:
            for event in stage.events:
                if _quoted(event.message):
                    _take(stages.setdefault((run.pipeline, stage.stage), []), run.pipeline, stage.stage, event, number)
    found = [lesson for lessons in stages.values() for lesson in lessons]
    found.sort(key=lambda lesson: (-lesson.kinds.total(), lesson.pipeline, lesson.stage, lesson.message))
    return found[:MOST_LESSONS]


def skills_of(lessons: Iterable[StageLesson], known: Iterable[Skill]) -> tuple[list[Skill], list[str]]:
    """Lessons as skills, and the names of those that are known already. ``known``: every skill there ever was, also
    those that were rejected: they do not come back. Raises SkillError."""
    taken = {skill.name: skill for skill in known}
    told = [(skill.name, *_told_by(skill)) for skill in taken.values()]
    new: list[Skill] = []
    old: list[str] = []
    for lesson in lessons:
        skill = _skill(lesson)
        stage, words = _told_by(skill)
        same = next((name for name, of, others in told if of == stage and _alike(words, others) >= ALIKE), None)
        if same is not None or skill.name in taken:
            old.append(same or skill.name)
            continue
        taken[skill.name] = skill
        new.append(skill)
    return new, old


def _told_by(skill: Skill) -> tuple[str, frozenset[str]]:
    """The stage that a skill of this form is about, and the words of the failure; nothing of another skill."""
    lines = skill.body.splitlines()
    quoted = next((line for line in lines if line.startswith("> ")), None)
    stage, colon, _ = lines[0].removeprefix("# ").partition(": ")
    return ("", frozenset()) if quoted is None or not colon else (stage, _words(quoted))


def _take(found: list[StageLesson], pipeline: str, stage: str, event: PipelineEvent, run: int) -> None:
    words = _words(event.message)
    lesson = next((one for one in found if _alike(one.words, words) >= ALIKE), None)
    if lesson is None:
        if len(found) >= MOST_OF_STAGE:
            return
        lesson = StageLesson(pipeline, stage, words, _quoted(event.message))
        found.append(lesson)
    lesson.kinds[event.kind] += 1
    lesson.runs.add(run)
    fix = _quoted(event.fix)
    if fix and fix not in lesson.fixes:
        lesson.fixes.append(fix)


def _skill(lesson: StageLesson) -> Skill:
    stage, title = _quoted(lesson.stage), _quoted(lesson.message, MOST_IN_TITLE)
    seen = ", ".join(f"{number} × {kind}" for kind, number in sorted(lesson.kinds.items()))
    helped = [f"> {fix}" for fix in lesson.fixes[:2]] or ["Nothing that helped was recorded: find the cause first."]
    body = "\n".join(
        [
            f"# {stage}: {title}",
            "",
            f"1. Before the stage “{stage}” of “{_quoted(lesson.pipeline)}” is done, look whether this would happen:",
            f"> {lesson.message}",
            "2. What helped:",
            *helped,
            "3. Check the result against it before it is handed on.",
            "",
            f"Seen: {seen}, in {len(lesson.runs)} {'run' if len(lesson.runs) == 1 else 'runs'}.",
            "Not: beginning the stage again with nothing changed.",
        ]
    )
    return write(_name(lesson), f"A known failure of the stage {stage}: {title}", body, CATEGORY)


def _name(lesson: StageLesson) -> str:
    """The stage and the first words of what went wrong, as the name of a folder."""
    words = [*_slug(lesson.stage).split("-")[:4], *_slug(" ".join(_WORD.findall(lesson.message)[:5])).split("-")]
    name = "-".join(word for word in ("pipeline", *words) if word)
    return name[:MOST_OF_NAME].rstrip("-")


def _slug(text: str) -> str:
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return _UNFIT.sub("-", plain.lower()).strip("-")


def _quoted(text: str, most: int = MOST_QUOTED) -> str:
    """A text of somebody else's as one line of plain characters, which can end no block and hide nothing."""
    seen = "".join(
        c if unicodedata.category(c)[0] != "C" and c not in "\u2028\u2029" else " " for c in text[: 4 * most]
    )
    line = " ".join(seen.replace("`", "'").replace("<", "‹").replace(">", "›").split())
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"


def _words(text: str) -> frozenset[str]:
    """What a message says, without the places, numbers and sums that differ from time to time."""
    return frozenset(word.lower() for word in _WORD.findall(_PLACES.sub(" ", text)))


def _alike(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / len(one | other) if one | other else 1.0
