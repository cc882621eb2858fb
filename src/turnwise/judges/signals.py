"""The free judge: a verdict from what stands in the next state itself, without any model, or an abstention.

Pure functions over the conversation. The next state is untrusted: it is matched against patterns and never obeyed.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from turnwise.judges.hints import extract_hint
from turnwise.judges.signals_reply import reply_features
from turnwise.judges.signals_tool import tool_features
from turnwise.judges.text import answer_text, clip, content_text, task_text, without_judge_orders
from turnwise.types import Message

Weights = dict[str, tuple[float, float, float]]
"""Kind of evidence → log-odds it adds to (bad, neutral, good)."""

WEIGHTS_FILE = Path(__file__).with_name("weights.json")

# Below this probability of the likeliest score the judge abstains; chosen on the cross-validated curve (docs/judge.md).
MIN_CONFIDENCE = 0.7
MAX_DOCUMENT_CHARS = 500_000

# Length or punctuation of a reply without any known kind of evidence is no ground for a verdict.
NO_EVIDENCE = 0.4


@dataclass(frozen=True, slots=True)
class SignalVerdict:
    """What the free signals say. ``score`` is None when the judge abstains; ``best`` is its guess all the same.

    ``confidence`` is the probability of ``best``. ``directive``: the next state says how the answer should have been
    different; ``hint`` is that part as an instruction. ``reasons`` name the evidence, strongest first.
    """

    score: int | None
    best: int
    confidence: float
    directive: bool
    hint: str | None
    reasons: list[str] = field(default_factory=list)


def judge_from_signals(
    task_messages: list[Message],
    answer: Message,
    next_state: list[Message],
    weights: Weights | None = None,
    min_confidence: float = MIN_CONFIDENCE,
) -> SignalVerdict:
    """Judge ``answer`` (given to ``task_messages``) from all messages that followed it."""
    table = weights if weights is not None else load_weights()
    found = features(task_messages, answer, next_state)
    p = probabilities(found, table)
    best = max((-1, 0, 1), key=lambda s: p[s])
    confidence = p[best]
    if "reply.no_kind" in found and not any(n.startswith("tool.") for n in found):
        confidence = min(confidence, NO_EVIDENCE)
    reply, tool = _split(next_state)
    hint = extract_hint(best, clip(answer_text(answer)), reply, tool, found)
    ranked = sorted(found, key=lambda n: -abs(found[n] * table.get(n, (0, 0, 0))[best + 1]))
    return SignalVerdict(
        score=best if confidence >= min_confidence else None,
        best=best,
        confidence=confidence,
        directive=hint is not None,
        hint=hint,
        reasons=[name for name in ranked if name != "bias"],
    )


def features(task_messages: list[Message], answer: Message, next_state: list[Message]) -> dict[str, float]:
    """All evidence of a next state → strength, with the constant ``bias``."""
    task, said = clip(task_text(task_messages)), clip(answer_text(answer))
    reply, tool = _split(next_state)
    found = {"bias": 1.0, **tool_features(task, said, tool)}
    if any(m.get("role") == "user" for m in next_state):
        from_reply = reply_features(task, said, reply)
        # A person who has seen the tool's output and says what they think of it outranks the output.
        if any(n in from_reply for n in ("reply.only_positive", "reply.only_negative")):
            found = {n: v if n == "bias" else 0.4 * v for n, v in found.items()}
        found |= from_reply
    return found


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


def _split(next_state: list[Message]) -> tuple[str, list[str]]:
    """The person's words (without orders to the judge) and the tool outputs of a next state."""
    said = "\n".join(content_text(m) for m in next_state if m.get("role") == "user")
    outputs = [content_text(m) for m in next_state if m.get("role") == "tool"]
    return without_judge_orders(clip(said))[0], [text if _is_document(text) else clip(text) for text in outputs]


def _is_document(text: str) -> bool:
    """Whether the output is one JSON document, which is read as such and would be broken by clipping."""
    if len(text) > MAX_DOCUMENT_CHARS or text.lstrip()[:1] not in ("{", "["):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
