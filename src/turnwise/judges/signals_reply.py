"""Reading a person's reply: praise, outcome, reproach, wish for another form, acknowledgement, change of topic.

Pure functions. They say which kinds of evidence (``lexicon.py``) the reply holds and how it relates to the answer and
the task; what they are worth together stands in ``weights.json``.
"""

from __future__ import annotations

import re

from turnwise.judges.lexicon import CONFIRMS, KINDS, NEGATED_DEFECT, NEGATED_PRAISE
from turnwise.judges.text import plain, sentences, words

POSITIVE = ("praise", "success", "adopted", "conceded")
NEGATIVE = ("rejected", "reproached", "defect", "revise", "incredulous", "sarcasm", "gave_up")
NEUTRAL = ("acknowledged", "deferred", "new_topic", "outside", "accident")

_QUOTED = re.compile(r"\"([^\"\n]{4,120})\"|(?<!\w)'([^'\n]{6,120})'(?!\w)")
_ASKS = re.compile(
    r"\?\s*$|^(?:and |ok(?:ay)?,? |so )?(?:what|who|when|where|which|how|is|are|do|does|did|was|can|could|would"
    r"|will|wie|was|wer|wann|wo"
    r"|quel\w*|combien|où|cómo|qué|cuándo|dónde|come|cosa|quando|hoe|wat|waar)\b",
    re.IGNORECASE,
)

# A sentence or clause that opens with a verb of saying or editing: an order about how to answer.
_IMPERATIVE = re.compile(
    r"(?:^|[.;:!?…-]\s*|\n|, |\b(?:please|pls|and|just|but|maybe|then|instead|rather)\s+)(?:do not |don't |please )?"
    r"(?:start|begin|end|name|tell|mention|say|show|give|use|write|add|include|explain|point|get|stick|stop"
    r"|keep|leave"
    r"|remove|put|cut|cap|strip|drop|skip|avoid|try|make|be|talk|focus|pick|choose|check|read|watch|call|format|quote"
    r"|cite|sort|split|move|round|convert|return|answer|address|spell|describe|compare|limit|replace|rename"
    r"|handle)\s",
    re.IGNORECASE,
)

_NEXT_STEP = re.compile(
    r"^(?:(?:ok(?:ay)?|great|good|yes|yep|perfect|thanks|cool|nice|alright|right|so|and)[,.!]? )*"
    r"(?:(?:can|could|would|will) you (?:please |pls )?)?(?:also|next|now|then|go ahead|open a|close the|deploy"
    r"|merge|release|push|commit|save it"
    r"|squash|tag|file|do the same|let's (?:build|do|start|go|ship|use|move)|(?:please |pls )?(?:also "
    r"|now )?(?:create|prepare|set up|schedule|invite|send) )\b"
    r"|\b(?:too|as well|the same for \w+.*)[.!]?$|^(?:next|number two|question two|another)\b",
    re.IGNORECASE,
)


def reply_features(task: str, answer: str, reply: str) -> dict[str, float]:
    """Kinds of evidence in a person's reply → strength. ``reply`` is free of orders to the judge."""
    text = plain(reply).strip()
    if not text:
        return {"reply.silent": 1.0}
    lines = sentences(text)
    found: dict[str, float] = {}
    # A sentence that asks for the next piece of work says nothing against this one.
    kept = "\n".join(line for line in lines if not _NEXT_STEP.search(line))
    softened = CONFIRMS.sub(" ", kept)
    softened = NEGATED_DEFECT.sub(" ", softened)
    praisable = NEGATED_PRAISE.sub(" ", text)
    for kind, pattern in KINDS.items():
        source = praisable if kind == "praise" else softened if kind in NEGATIVE else text
        hits = sum(1 for _ in pattern.finditer(source))
        if hits:
            found[f"reply.{kind}"] = 1.0 if hits == 1 else 1.4
    if NEGATED_DEFECT.search(text):
        found["reply.success"] = max(found.get("reply.success", 0.0), 1.0)
    if praisable != text:
        found["reply.defect"] = max(found.get("reply.defect", 0.0), 1.2)

    if answers_a_question(answer, text):
        # Whatever the words, the person says what the assistant wanted to know.
        return {"reply.answers_a_question": 1.0}
    if kept != "\n".join(lines):
        found["reply.next_step"] = 1.0
    if _IMPERATIVE.search(kept):
        found["reply.imperative"] = 1.0
    positive = any(f"reply.{k}" in found for k in POSITIVE)
    negative = any(f"reply.{k}" in found for k in NEGATIVE)
    neutral = any(f"reply.{k}" in found for k in NEUTRAL)
    if (
        lines
        and any(KINDS[k].search(lines[0]) for k in ("praise", "success", "conceded"))
        and not _ASKS.search(lines[0])
    ):
        found["reply.opens_well"] = 1.0
    if positive and not negative:
        found["reply.only_positive"] = 1.0
    if negative and not positive:
        found["reply.only_negative"] = 1.0
    if neutral and not positive and not negative:
        found["reply.only_neutral"] = 1.0
    if not positive and not negative and not neutral:
        found["reply.no_kind"] = 1.0
    if all(_ASKS.search(line) for line in lines):
        found["reply.only_asks"] = 1.0
    if any(_in(quote, answer) for quote in quotes(text)):
        found["reply.quotes_answer"] = 1.0
    if len(text.split()) <= 4:
        found["reply.terse"] = 1.0
    if "!" in text:
        found["reply.exclaims"] = 1.0
    if re.search(r"\b[A-Z]{4,}\b", text) and not text.isupper():
        found["reply.shouts"] = 1.0
    asked = words(task)
    if asked:
        repeated = len(asked & words(text)) / len(asked)
        if repeated >= 0.5:
            found["reply.restates_task"] = min(1.4, 2 * repeated)
            if "reply.only_asks" in found:
                found["reply.reasks"] = 1.0
    if not words(text) & (asked | words(answer)) and len(text.split()) > 6:
        found["reply.elsewhere"] = 1.0
    return found


def answers_a_question(answer: str, reply: str) -> bool:
    """Whether the reply gives what the assistant asked for at its end, rather than an opinion on the answer."""
    if not answer.rstrip().endswith("?"):
        return False
    opinion = ("rejected", "reproached", "defect", "sarcasm", "incredulous", "gave_up", "success", "conceded")
    return not any(KINDS[kind].search(reply) for kind in opinion) and len(reply.split()) <= 30


def quotes(text: str) -> list[str]:
    """Phrases that the person put into quotation marks."""
    return [a or b for a, b in _QUOTED.findall(text)]


def _in(phrase: str, answer: str) -> bool:
    def squash(s: str) -> str:
        return re.sub(r"\W+", " ", s.lower()).strip()

    return len(phrase.split()) >= 2 and squash(phrase) in squash(answer)
