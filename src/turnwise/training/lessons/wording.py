"""In which words of the person's wishes lessons are made: the last ones, plain instructions, or earlier ones.

A small model may follow a wish in one wording and not in another, so that others are tried where too few lessons come
of the last one. Lessons in other words than the last ones count where these do not make them less likely.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple

from turnwise.tokens.rendering import PromptRenderer
from turnwise.training.asking import GivenAnswer
from turnwise.training.lessons.making import FEWEST, Lesson, in_line_with, make_lessons
from turnwise.training.lessons.questions import OpenQuestion
from turnwise.training.lessons.quoted import quoted_words, said_again
from turnwise.training.lessons.wishes import Standing
from turnwise.training.policy import Policy
from turnwise.training.step import Tick

log = logging.getLogger(__name__)

MOST_REWORDED = 3
"""Earlier wordings of wishes that are tried."""


class MadeLessons(NamedTuple):
    """Lessons in the wishes, those of what was taken back, and the wishes in the words in which they were made."""

    lessons: list[Lesson]
    back: list[Lesson]
    words: Standing

    @property
    def all(self) -> list[Lesson]:
        """Of a question one."""
        taught = {tuple(lesson.asked) for lesson in self.lessons}
        return [*self.lessons, *(lesson for lesson in self.back if tuple(lesson.asked) not in taught)]


@dataclass(frozen=True, slots=True)
class Wordings:
    """The making of lessons in wishes that were ``said``: at most ``wanted``, with answers of ``longest`` tokens.

    ``plainly`` gives wishes as plain instructions, where there are such.
    """

    policy: Policy
    renderer: PromptRenderer
    questions: Sequence[OpenQuestion]
    said: Standing
    wanted: int
    longest: int
    plainly: Callable[[Standing], Standing | None]
    tick: Tick
    known: dict[int, GivenAnswer] = field(default_factory=dict)

    def best(self) -> MadeLessons:
        """Lessons in the first words of which enough come. Raises ModelError and EngineError.

        Where the model has too little to say behind labels that announce something, plain answers stand behind them:
        that is what it can do.
        """
        found = self._first()
        if len(found.lessons) >= FEWEST or not self.said.announced:
            return found
        return replace(self, said=replace(self.said, announced=[])).best()

    def _first(self) -> MadeLessons:
        if found := self._quoting():
            return found
        found = self._in(self.said)
        if not self.said.wishes or (2 * len(found.lessons) >= self.wanted and len(found.lessons) >= FEWEST):
            return found
        if plain := self.plainly(self.said):
            new = self._in_plain(plain)
            if len(new.lessons) >= max(FEWEST, len(found.lessons) + 1):
                log.info("of the person's words come %d lessons, of plain ones %d", *_counts(found, new))
                return new
        if len(found.lessons) >= FEWEST:
            return found
        for words, others in islice(self.said.reworded(), MOST_REWORDED):
            # Words that say nothing to the model are given up early.
            some = self.questions[: self.wanted // 2]
            new = self._in_line(words, others) if self._in(words, some).lessons else found
            if len(new.lessons) >= FEWEST:
                log.info("of a wish's last words come %d lessons, of earlier ones %d", *_counts(found, new))
                return new
        return found

    def _quoting(self) -> MadeLessons | None:
        """Lessons in plain instructions that quote what the person says again and again without marks, if enough come.

        Nothing else tells that these words are to be said, and where: of the person's own words come lessons that have
        them anywhere.
        """
        every = [*self.said.wishes, *(one.text for some in self.said.before for one in some)]
        plain = self.plainly(self.said) if said_again(every) else None
        if plain is None or len(quoted_words(plain.wishes)) <= len(quoted_words(self.said.wishes)):
            return None
        new = self._in_plain(plain)
        if len(new.lessons) < FEWEST:
            return None
        log.info("%d lessons in plain words, which quote what the person says again", len(new.lessons))
        return new

    def _in(self, words: Standing, questions: Sequence[OpenQuestion] | None = None) -> MadeLessons:
        questions = self.questions if questions is None else questions
        most = min(self.wanted, len(questions))
        made = make_lessons(self.policy, self.renderer, questions, most, words, self.longest, self.tick, self.known)
        return MadeLessons([x for x in made if not x.back], [x for x in made if x.back], words)

    def _in_plain(self, plain: Standing) -> MadeLessons:
        return self._in_line(plain, [wish for wish in self.said.wishes if wish in plain.wishes])

    def _in_line(self, words: Standing, others: Sequence[str]) -> MadeLessons:
        """Those that the person's last words make no less likely than ``others`` among them alone."""
        made = self._in(words)
        kept = in_line_with(self.policy, self.questions, made.lessons, self.said.wishes, others, self.tick)
        return made._replace(lessons=kept)


def _counts(found: MadeLessons, new: MadeLessons) -> tuple[int, int]:
    return len(found.lessons), len(new.lessons)
