"""What a judged turn shows: a wish, a failure with its evidence, or nothing.

A failure is a turn that was judged -1, whose test run or checker failed, or whose tool call could not be carried out.
A turn without a verdict, or judged 0, is none. What is kept of it is short and is kept apart by source: the person's
own words, reports in our words, and foreign text, which nothing may rest on without review. Runs in the judge's child.
"""

from __future__ import annotations

from dataclasses import dataclass

from turnwise.judges.signals.hints import QUOTED
from turnwise.judges.signals.reading import read
from turnwise.judges.sources.by_source import Sources, by_source
from turnwise.judges.sources.person import person_words
from turnwise.judges.text import clip, sentences, without_judge_orders
from turnwise.messages import answer_text, clean, parts_of, text_of
from turnwise.skills.wishes import PersonsWish, wishes_among
from turnwise.types import Image, JudgeTask

BY_THE_ACTION = ("tool.bad_call", "tool.command_not_found", "tool.check_failed", "tool.tests_failed")
"""Evidence of a failure that needs no other word: the call itself was wrong, or a check of ours says so."""
MOST_SAID = 600
MOST_FOREIGN = 600
LOOKED_AT = 8
"""User messages, the last ones, that are looked through for what is not the person's."""


@dataclass(frozen=True, slots=True)
class ShownTurn:
    """What one judged turn shows. ``question`` and ``said``: the person's words before and after the answer.

    ``evidence``: the kind of what tools reported (tool_results.py), with the ``tool`` and our ``reports`` of it.
    ``answer`` and ``foreign`` are text that others may have had a hand in; ``mixed``: whether they had in the answer.
    """

    turn_id: str
    session_id: str
    score: int
    question: str
    said: tuple[str, ...] = ()
    wishes: tuple[PersonsWish, ...] = ()
    evidence: str | None = None
    tool: str = ""
    reports: tuple[str, ...] = ()
    answer: str = ""
    foreign: str = ""
    mixed: bool = False

    @property
    def failed(self) -> bool:
        """Whether it is a failure."""
        return self.score < 0 or (self.score == 0 and self.evidence in BY_THE_ACTION)

    @property
    def source(self) -> tuple[str, str]:
        """The turn and its session."""
        return self.turn_id, self.session_id


def look_at(task: JudgeTask, session_id: str, judge: str, score: int, hint: str | None) -> ShownTurn:
    """What a turn shows, with the last word on it: who judged, the score, and the hint."""
    reading, sources = read(task), by_source(task.answer, task.next_state, task.tools)
    said = tuple(_as_taken(*pair, hint) for pair in zip(reading.sentences, reading.quoting, strict=True))
    if judge == "person":  # their word on the turn itself, beside what they wrote next
        said = tuple(sentences(without_judge_orders(clip(clean(hint or "")))[0])) or said
    elif judge == "model":  # its hint is not in their words
        hint = None
    return ShownTurn(
        turn_id=task.turn_id,
        session_id=session_id,
        score=score,
        question=reading.task,
        said=said,
        wishes=tuple(wish for wish in wishes_among(said, hint) if QUOTED not in wish.words),
        evidence=reading.evidence,
        tool=next((result.tool for result in sources.results if result.kind == reading.evidence), ""),
        reports=tuple(dict.fromkeys(sources.diagnostics))[:3],
        answer=clip(clean(answer_text(task.answer)))[:MOST_SAID],
        foreign=_foreign(sources),
        mixed=_is_mixed(task),
    )


def _as_taken(sentence: str, quoting: str, hint: str | None) -> str:
    """A sentence, with the phrases that it quotes where the judge took these into its hint."""
    return quoting if hint and clean(quoting) in hint else sentence


def _foreign(sources: Sources) -> str:
    return clip(clean("\n".join(text for _, text in sources.foreign)))[:MOST_FOREIGN]


def _is_mixed(task: JudgeTask) -> bool:
    """Whether the answer was given with anything in view that is not the person's own words."""
    if any(message.role not in ("system", "user", "assistant") for message in task.messages):
        return True
    asked = [message for message in task.messages if message.role == "user"]
    if len(asked) > LOOKED_AT or any(isinstance(part, Image) for message in asked for part in parts_of(message)):
        return True
    return any(person_words(message).split() != text_of(message).split() for message in asked)
