"""What a next state holds for the free judge: the person's own sentences, and what diagnostic tools reported.

Runs in the judge's child: all patterns over foreign text are here and below `sources`. What comes out is short, and the
only words in it that anything is learned from are the person's. Pure functions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from turnwise.judges.signals.corrections import correction_evidence
from turnwise.judges.signals.hints import hint_from_reports
from turnwise.judges.signals.proposals import propose
from turnwise.judges.signals.tool_results import tool_evidence
from turnwise.judges.sources.by_source import by_source
from turnwise.judges.sources.person import person_words
from turnwise.judges.sources.quotations import shown, without_hidden
from turnwise.judges.text import clip, sentences, without_judge_orders
from turnwise.messages import answer_text, clean
from turnwise.skills.wishes import wishes_among
from turnwise.types import JudgeTask, Message, Proposal

MAX_ASKED = 8
"""User messages, the last ones, among which the task is looked for."""
MAX_SENTENCES = 12
"""Sentences of a reply that are looked at: half from each end."""
MAX_SENTENCE_CHARS = 600
TASK_CHARS = 500
ACTION_CHARS = 600
"""Characters of the task and of the answer, half from each end: they are context, and no more."""


@dataclass(frozen=True, slots=True)
class Reading:
    """``sentences``: the person's, empty where they said nothing; ``quoting``: the same with the phrases that they
    quote. ``lasting``: which of them say outright that they are meant for later answers. ``evidence``: the kind of the
    tools' outcome, if any; ``correction``: whether the answer did what the correction before it quotes, if that shows.

    ``report_hint``: a hint in our words; ``proposal``: what a source without trust says, for the person to look at.
    """

    task: str
    action: str
    sentences: tuple[str, ...]
    lasting: tuple[bool, ...] = ()
    quoting: tuple[str, ...] = ()
    evidence: str | None = None
    correction: str | None = None
    report_hint: str | None = None
    proposal: Proposal | None = None


def read(task: JudgeTask) -> Reading:
    """One turn's next state, read by what each of its sources may say."""
    return read_parts(task.messages, task.answer, task.next_state, task.tools)


def read_parts(
    messages: list[Message], answer: Message, next_state: list[Message], tools: list[dict[str, Any]] | None = None
) -> Reading:
    """The same from its parts. ``tools``: the definitions that the request had, where they are known."""
    sources = by_source(answer, next_state, tools)
    asked = clip(_asked(messages))
    quoting = sentences(clean(without_judge_orders(clip(sources.quoting))[0]))
    if len(quoting) > MAX_SENTENCES:
        quoting = quoting[: MAX_SENTENCES // 2] + quoting[-MAX_SENTENCES // 2 :]
    said = [without_hidden(sentence) for sentence in quoting]
    wished = {wish.words for wish in wishes_among(said, None)}
    return Reading(
        task=_ends(asked, TASK_CHARS),
        action=_ends(clip(clean(answer_text(answer))), ACTION_CHARS),
        sentences=tuple(without_hidden(_ends(sentence, MAX_SENTENCE_CHARS)) for sentence in quoting),
        lasting=tuple(" ".join(clean(sentence).split()) in wished for sentence in said),
        quoting=tuple(_with_phrase(_ends(sentence, MAX_SENTENCE_CHARS)) for sentence in quoting),
        evidence=tool_evidence(asked, sources.results),
        correction=correction_evidence(messages, answer) if quoting else None,
        report_hint=hint_from_reports(sources),
        proposal=propose(sources),
    )


def _with_phrase(sentence: str) -> str:
    """A sentence with the phrase that it quotes, where there is one alone: of two, one may be the person's."""
    text, phrases = shown(sentence)
    safe = len(phrases) == 1 and clean(phrases[0]) == phrases[0] and not without_judge_orders(phrases[0])[1]
    return text if safe else without_hidden(sentence)


def _asked(messages: list[Message]) -> str:
    """What the person asked for last, in their own words."""
    asked = [m for m in messages if m.role == "user"][-MAX_ASKED:]
    return next((words for m in reversed(asked) if (words := person_words(m))), "")


def _ends(text: str, chars: int) -> str:
    return text if len(text) <= chars else f"{text[: chars // 2]} … {text[-chars // 2 :]}"
