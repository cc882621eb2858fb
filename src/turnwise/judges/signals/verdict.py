"""The free judge: a verdict from what stands in the next state itself, without any model, or an abstention.

Pure functions over the conversation. Each piece of the next state is read by what its source allows (``sources.py``):
the person's words, and the reports of diagnostic tools. Content decides nothing.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from turnwise.judges.signals.hints import extract_hint
from turnwise.judges.signals.proposals import propose
from turnwise.judges.signals.reply import reply_features
from turnwise.judges.signals.tool_results import tool_features
from turnwise.judges.sources.by_source import Sources, by_source
from turnwise.judges.sources.person import person_words
from turnwise.judges.text import clip, without_judge_orders
from turnwise.messages import answer_text
from turnwise.types import Message, Proposal

Weights = dict[str, tuple[float, float, float]]
"""Kind of evidence → log-odds it adds to (bad, neutral, good)."""

WEIGHTS_FILE = Path(__file__).with_name("weights.json")

MAX_ASKED = 8
"""User messages, the last ones, among which the task is looked for."""

# Below this probability of the likeliest score the judge abstains; chosen on the cross-validated curve (docs/judge.md).
MIN_CONFIDENCE = 0.7
NOTHING_SAID = frozenset(["bias", "tool.content", "tool.several", "reply.silent"])
"""Evidence of nothing: content, however much of it, and silence."""

# Length or punctuation of a reply without any known kind of evidence is no ground for a verdict.
NO_EVIDENCE = 0.4


@dataclass(frozen=True, slots=True)
class SignalVerdict:
    """What the free signals say. ``score`` is None when the judge abstains; ``best`` is its guess all the same.

    ``confidence`` is the probability of ``best``. ``directive``: the next state says how the answer should have been
    different; ``hint`` is that part as an instruction. ``reasons`` name the evidence, strongest first. ``proposal``:
    what a source without trust says, for the person to look at.
    """

    score: int | None
    best: int
    confidence: float
    directive: bool
    hint: str | None
    reasons: list[str] = field(default_factory=list)
    proposal: Proposal | None = None


def judge_from_signals(
    task_messages: list[Message],
    answer: Message,
    next_state: list[Message],
    weights: Weights | None = None,
    min_confidence: float = MIN_CONFIDENCE,
    tools: list[dict[str, Any]] | None = None,
) -> SignalVerdict:
    """Judge ``answer`` (given to ``task_messages``) from all messages that followed it.

    ``tools``: the definitions that the request had, where they are known.
    """
    table = weights if weights is not None else load_weights()
    sources = by_source(answer, next_state, tools)
    reply = _words(sources)
    found = _evidence(task_messages, answer, sources, reply)
    p = probabilities(found, table)
    best = max((-1, 0, 1), key=lambda s: p[s])
    confidence = p[best]
    if found.keys() <= NOTHING_SAID:
        best, confidence = 0, NO_EVIDENCE  # nobody who may say so said anything, whatever the weights are
    elif "reply.no_kind" in found and not any(n.startswith("tool.") and n not in NOTHING_SAID for n in found):
        confidence = min(confidence, NO_EVIDENCE)
    hint = extract_hint(best, clip(answer_text(answer)), reply, sources)
    ranked = sorted(found, key=lambda n: -abs(found[n] * table.get(n, (0, 0, 0))[best + 1]))
    return SignalVerdict(
        score=best if confidence >= min_confidence else None,
        best=best,
        confidence=confidence,
        directive=hint is not None,
        hint=hint,
        reasons=[name for name in ranked if name != "bias"],
        proposal=propose(sources) if hint is None else None,
    )


def features(
    task_messages: list[Message],
    answer: Message,
    next_state: list[Message],
    tools: list[dict[str, Any]] | None = None,
) -> dict[str, float]:
    """All evidence of a next state → strength, with the constant ``bias``."""
    sources = by_source(answer, next_state, tools)
    return _evidence(task_messages, answer, sources, _words(sources))


def _words(sources: Sources) -> str:
    """The person's words without orders to the judge."""
    return without_judge_orders(clip(sources.person))[0]


def _evidence(task_messages: list[Message], answer: Message, sources: Sources, reply: str) -> dict[str, float]:
    task, said = clip(_task(task_messages)), clip(answer_text(answer))
    found = {"bias": 1.0, **tool_features(task, sources.results)}
    if sources.person:
        from_reply = reply_features(task, said, reply)
        # A person who has seen the tool's output and says what they think of it outranks the output.
        if any(n in from_reply for n in ("reply.only_positive", "reply.only_negative")):
            found = {n: v if n == "bias" else 0.4 * v for n, v in found.items()}
        found |= from_reply
    return found


def _task(messages: list[Message]) -> str:
    """What the person asked for last, in their own words."""
    asked = [m for m in messages if m.role == "user"][-MAX_ASKED:]
    return next((words for m in reversed(asked) if (words := person_words(m))), "")


def probabilities(found: dict[str, float], weights: Weights) -> dict[int, float]:
    """Probability of each score: softmax over the summed log-odds of the evidence."""
    logits = [sum(value * weights[name][i] for name, value in found.items() if name in weights) for i in range(3)]
    top = max(logits)
    exp = [math.exp(v - top) for v in logits]
    return {score: e / sum(exp) for score, e in zip((-1, 0, 1), exp, strict=True)}


@cache
def load_weights() -> Weights:
    """The fitted weights that ship with the package."""
    raw = json.loads(WEIGHTS_FILE.read_text(encoding="utf-8"))
    return {name: (row[0], row[1], row[2]) for name, row in raw.items()}
