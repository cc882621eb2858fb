"""What the gateway asks of the library: which skills a conversation's prompt gets now, as one block of text.

A picture of the library is kept in memory and is drawn anew when the journal or a file has changed, looked for once a
second. A library that cannot be read, or has nothing to inject, costs a turn nothing and changes no prompt.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from turnwise.config import Config
from turnwise.errors import SkillError, TurnwiseError
from turnwise.journal import Journal
from turnwise.skills.embedding import Embedder, embedder
from turnwise.skills.library import KnownSkill, Library
from turnwise.skills.placing import place_of_wishes, sentence_behind
from turnwise.skills.query import question_of
from turnwise.skills.retrieval import BYTES_PER_TOKEN, SkillIndex, choose
from turnwise.skills.staying import staying
from turnwise.skills.vectors import word_vectors
from turnwise.skills.wishes import ended_in
from turnwise.types import BASE_VERSION, Message, Skill, SkillState

log = logging.getLogger(__name__)

POLL_S = 1.0
HEAD = "# Skills\n\nFollow these instructions where they fit what is asked."


@dataclass(frozen=True, slots=True)
class ChosenSkills:
    """The skills of one prompt: the library's ``generation``, the recorded ``versions`` in order, and their text.

    ``block`` belongs into the system message, and ``behind``, wishes in one line, behind the person's question; where
    there is none, all of it is the block ``whole``. ``withheld``: versions that fit and are left out, so that turns
    with and without them can be compared.
    """

    generation: int | None = None
    versions: tuple[int, ...] = ()
    block: str = ""
    withheld: tuple[int, ...] = ()
    behind: str = ""
    whole: str = ""

    def in_one_block(self) -> ChosenSkills:
        """The same skills, all of them in the block."""
        return replace(self, block=self.whole, behind="")

    def without(self) -> ChosenSkills:
        """No skill, of the same generation."""
        return ChosenSkills(self.generation)


NO_SKILLS = ChosenSkills()


@dataclass(frozen=True, slots=True)
class _Picture:
    generation: int
    index: SkillIndex | None  # None: nothing to inject
    versions: dict[str, int]
    tried_out: frozenset[str] = frozenset()  # the names of candidates
    wishes: dict[str, str] = field(default_factory=dict)  # by name, the sentences that stand behind a question
    taught: dict[int, set[int]] = field(default_factory=dict)  # by policy version, the versions of wishes it was taught

    def standing(self, had: Sequence[int]) -> list[Skill]:
        """The skills of these versions, by name; none where one of them is not injected any more."""
        skills = self.index.skills if self.index is not None else []
        found = [skill for skill in skills if self.versions[skill.name] in had]
        return found if len(found) == len(had) else []


class ServingSkills:
    """The skills that serve. `take_up` and `follow` keep them up to date; `chosen` is safe from any thread."""

    def __init__(self, config: Config, journal: Journal) -> None:
        self._settings = config.skills
        self._records = journal.skills
        self._library = Library(config, journal)
        self._place = place_of_wishes(config)
        self._embedder: Embedder | None = None
        self._seen: object = None
        self._picture: _Picture | None = None
        self._said = ""
        self.ever = False
        """Whether there ever was a skill, so that recorded turns may have some."""

    def chosen(
        self, messages: Sequence[Message], session_id: str = "", had: Sequence[int] = (), policy: int = BASE_VERSION
    ) -> ChosenSkills:
        """The skills for a conversation, and the generation of the library. The order is by name.

        A share of sessions goes without a candidate, each time the same ones. `had`: the versions in the prompt that
        this one goes on from; the set stays where it can. `policy`: the version of the weights that answer. Of wishes
        that would stand behind the question those are left out that they were taught, or that the question ends.
        """
        picture = self._picture
        if picture is None:
            return NO_SKILLS
        if picture.index is None:
            return ChosenSkills(picture.generation)
        wanted = self._settings
        question = question_of(messages)
        without = self._taught(picture, policy) | self._ended(picture, question)
        limits = (wanted.threshold, wanted.most, wanted.max_tokens, wanted.retrieval)
        found = choose(picture.index, question, *limits, without=without)
        if picture.index.fault:
            self._say(picture.index.fault)
        if before := picture.standing(had):
            found = [skill for skill in staying(question, found, before) if skill.name not in without]
        left_out = {
            skill.name
            for skill in found
            if skill.name in picture.tried_out
            and is_withheld(session_id, picture.versions[skill.name], wanted.withhold_share)
        }
        told = [skill for skill in found if skill.name not in left_out]
        versions = tuple(picture.versions[skill.name] for skill in told)
        withheld = tuple(picture.versions[skill.name] for skill in found if skill.name in left_out)
        behind = " ".join(picture.wishes[skill.name] for skill in told if skill.name in picture.wishes)
        whole = block_of(told, wanted.max_tokens)
        block = block_of([skill for skill in told if skill.name not in picture.wishes], wanted.max_tokens)
        return ChosenSkills(picture.generation, versions, block, withheld, behind, whole)

    def _taught(self, picture: _Picture, policy: int) -> set[str]:
        """The names of wishes for behind a question that a version of the weights was taught."""
        if not picture.wishes or policy == BASE_VERSION:
            return set()
        if policy not in picture.taught:
            picture.taught[policy] = self._records.taught(policy, [picture.versions[name] for name in picture.wishes])
        return {name for name in picture.wishes if picture.versions[name] in picture.taught[policy]}

    def _ended(self, picture: _Picture, question: str) -> set[str]:
        """The names of wishes for behind a question that this question takes back or puts another in place of: the
        sentence would stand right behind the words that end it."""
        if not picture.wishes or not question:
            return set()
        try:
            return ended_in(question, picture.wishes, word_vectors)
        except SkillError as e:
            self._say(str(e))
            return set()

    def take_up(self) -> None:
        """Draw the picture anew where anything has changed; a fault is said once, and the last picture stays."""
        try:
            current = self._records.current()
            self.ever = self.ever or current.number > 0
            if not self._settings.enabled:
                self._picture = _Picture(current.generation, None, {}) if self.ever else None
                return
            lying = self._library.folder.seen()  # before the files are read: what changes meanwhile is seen next time
            if (current.number, lying) == self._seen:
                return
            view = self._library.sync()
            self.ever = self.ever or view.revision.number > 0
            injected = view.injected
            if injected:
                index = SkillIndex([known.skill for known in injected], self._vectors())
                versions = {known.skill.name: known.version.id for known in injected}
                tried_out = frozenset(known.skill.name for known in injected if known.state is SkillState.CANDIDATE)
                wishes = self._behind(injected)
                self._picture = _Picture(view.revision.generation, index, versions, tried_out, wishes)
            else:
                self._picture = _Picture(view.revision.generation, None, {}) if self.ever else None
            self._seen = (view.revision.number, lying)
            count = len(view.faults)  # their names may be made of what a person said
            self._say(f"{count} files cannot be taken; `turnwise skills list` says why" if count else "")
        except TurnwiseError as e:
            self._say(str(e))

    async def follow(self) -> None:
        """Look for changes for ever."""
        while True:
            await asyncio.sleep(POLL_S)
            try:
                await asyncio.to_thread(self.take_up)
            except Exception:
                log.exception("the library of skills could not be looked at; it is tried again")

    def _behind(self, injected: Sequence[KnownSkill]) -> dict[str, str]:
        """By name, the wishes that stand behind questions."""
        if self._place == "system":
            return {}
        sentences = {known.skill.name: sentence_behind(known) for known in injected}
        return {name: sentence for name, sentence in sentences.items() if sentence is not None}

    def _vectors(self) -> Embedder:
        if self._embedder is None:
            self._embedder = embedder(self._settings)
        return self._embedder

    def _say(self, fault: str) -> None:
        if fault and fault != self._said:
            log.warning("skills: %s", fault)
        self._said = fault


def is_withheld(session_id: str, version: int, share: float) -> bool:
    """Whether a session goes without a candidate: the same for all of its turns, and by chance among sessions."""
    drawn = hashlib.sha256(f"{version}/{session_id}".encode()).digest()
    return int.from_bytes(drawn[:4]) < share * 2**32


def block_of(skills: Sequence[Skill], max_tokens: int) -> str:
    """The text that stands in a system message; none for no skills. A single skill that is longer than the room is cut
    at the end of a line."""
    if not skills:
        return ""
    parts = [f"## {skill.name}: {skill.description}\n\n{_cut(skill.body, max_tokens)}" for skill in skills]
    return "\n\n".join([HEAD, *parts])


def _cut(body: str, max_tokens: int) -> str:
    room = max_tokens * BYTES_PER_TOKEN
    kept: list[str] = []
    for line in body.splitlines():
        room -= len(line.encode()) + 1
        if room < 0 and kept:
            break
        kept.append(line)
    return "\n".join(kept)
