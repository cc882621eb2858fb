"""The free judge: a verdict from what stands in the next state itself, or an abstention.

What the person said (an `Opinion` of a head), whether the answer did what their correction before it quotes, and what
diagnostic tools reported are averaged in log space. Other content decides nothing. Pure functions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from turnwise.judges.signals.corrections import BESIDE, WEIGHED
from turnwise.judges.signals.head import Opinion, words_head
from turnwise.judges.signals.hints import MAX_CHARS, hint_of
from turnwise.judges.signals.reading import Reading, read_parts
from turnwise.judges.signals.tool_results import CHANCES
from turnwise.types import Message, Proposal

MIN_CONFIDENCE = 0.55
"""Below this chance of the likeliest score the judge abstains; set by hand."""
MIN_DIRECTIVE = 0.65
"""From this chance on a sentence of the person is part of a hint; set by hand, after cross-validation."""
MIN_OWN = 0.5
"""From this chance on the words that a sentence quotes are part of a hint; the fit lays it (`fitting.fit_own`)."""
TOOLS_BESIDE = 0.3
"""Weight of the tools' outcome beside the person, who has seen it and has the last word."""
NOTHING_SAID = 0.4
"""Confidence where nobody who may say so said anything."""


@dataclass(frozen=True, slots=True)
class SignalVerdict:
    """What the free signals say. ``score`` is None when the judge abstains; ``best`` is its guess all the same.

    ``confidence`` is the chance of ``best``. ``hint``: what the next state says about how to answer. ``reasons`` name
    the evidence. ``proposal``: what a source without trust says, for the person to look at.
    """

    score: int | None
    best: int
    confidence: float
    hint: str | None
    reasons: list[str] = field(default_factory=list)
    proposal: Proposal | None = None


def weigh(reading: Reading, opinion: Opinion | None, min_confidence: float = MIN_CONFIDENCE) -> SignalVerdict:
    """The verdict on a reading. ``opinion``: of the head on the person's sentences; None where there are none."""
    parts = [(opinion.score, 1.0)] if opinion is not None else []
    if reading.evidence is not None:
        parts.append((CHANCES[reading.evidence], TOOLS_BESIDE if opinion is not None else 1.0))
    if opinion is not None and reading.correction is not None:
        parts.append((WEIGHED[reading.correction], BESIDE))
    reasons = [
        *(["the person's words"] if opinion is not None else []),
        *([reading.evidence] if reading.evidence else []),
        *([reading.correction] if opinion is not None and reading.correction else []),
    ]
    best, confidence = _likeliest(parts) if parts else (0, NOTHING_SAID)
    as_said = _as_said(reading, opinion)
    hint = hint_of(as_said, _directive(reading, opinion, as_said), MIN_DIRECTIVE) or reading.report_hint
    return SignalVerdict(
        score=best if confidence >= min_confidence else None,
        best=best,
        confidence=confidence,
        hint=hint,
        reasons=reasons,
        proposal=reading.proposal if hint is None else None,
    )


def _directive(reading: Reading, opinion: Opinion | None, as_said: Sequence[str]) -> list[float]:
    """The chance of each sentence to be directive. One that says outright that it is meant to last is, whatever the
    head thinks: it becomes a skill as well, and weights that never learned it would differ from what prompts say. So
    is one that wants a phrase to be said, which is told by a head of its own."""
    thought = opinion.directive if opinion is not None else [0.0] * len(reading.sentences)
    sure = [
        lasts or said != plain for lasts, said, plain in zip(reading.lasting, as_said, reading.sentences, strict=True)
    ]
    return [max(p, float(yes)) for p, yes in zip(thought, sure, strict=True)]


def _as_said(reading: Reading, opinion: Opinion | None) -> Sequence[str]:
    """The sentences, with the phrases that they quote where these are what the person wants to be said or left out.

    That is told by the words around them, so that no quoted word has a say in it. A sentence that is too long for a
    hint stays without: its phrase would be cut.
    """
    if opinion is None or not reading.quoting:
        return reading.sentences
    pairs = zip(reading.sentences, reading.quoting, opinion.own, strict=True)
    return [said if own >= MIN_OWN and len(said) <= MAX_CHARS else sentence for sentence, said, own in pairs]


def judge_by_words(
    messages: list[Message], answer: Message, next_state: list[Message], tools: list[dict[str, Any]] | None = None
) -> SignalVerdict:
    """The verdict where no engine gives hidden states: by the person's words alone, and the tools' outcome."""
    reading = read_parts(messages, answer, next_state, tools)
    return weigh(reading, words_head().opinion_of_words(reading.sentences) if reading.sentences else None)


def _likeliest(parts: list[tuple[tuple[float, float, float], float]]) -> tuple[int, float]:
    """The likeliest score and its chance, of chances that are multiplied with their weights."""
    logs = [sum(weight * math.log(max(p[i], 1e-6)) for p, weight in parts) for i in range(3)]
    e = [math.exp(x - max(logs)) for x in logs]
    best = max(range(3), key=lambda i: e[i])
    return best - 1, e[best] / sum(e)
