"""Reading a person's reply: praise, outcome, reproach, wish for another form, acknowledgement, change of topic.

Pure functions. They say which kinds of evidence (``lexicon.py``) the reply holds and how it relates to the answer and
the task; what they are worth together stands in ``weights.json``.
"""

from __future__ import annotations

from turnwise.judges.signals.approval import CONFIRMS, KEEP_ON, NEGATED_PRAISE, SOFTENED, TURNS, WISHED
from turnwise.judges.signals.lexicon import KINDS, NEGATED_DEFECT
from turnwise.judges.text import plain, sentences, words
from turnwise.patterns import IGNORECASE, pattern

POSITIVE = ("praise", "success", "adopted", "conceded")
NEGATIVE = ("rejected", "reproached", "defect", "revise", "incredulous", "sarcasm", "gave_up")
NEUTRAL = ("acknowledged", "deferred", "new_topic", "outside", "accident")

_QUOTED = pattern(r"\"([^\"\n]{4,120})\"|(?<!\w)'([^'\n]{6,120})'(?!\w)")
_ASKS = pattern(
    r"\?\s*$|^(?:and |ok(?:ay)?,? |so )?(?:what|who|when|where|which|how|is|are|do|does|did|was|can|could"
    r"|would(?!'ve| (?:be|have been|love|like|prefer) )|will|wie|was|wer|wann|wo"
    r"|quel\w*|combien|où|cómo|qué|cuándo|dónde|come|cosa|quando|hoe|wat|waar)\b",
    IGNORECASE,
)

# A sentence or clause that opens with a verb of saying or editing: an order about how to answer.
_IMPERATIVE = pattern(
    r"(?:^|[.;:!?…-]\s*|\n|, |\b(?:please|pls|and|just|but|maybe|then|instead|rather)\s+)(?:do not |don't |please )?"
    r"(?:start|begin|end|name|tell|mention|say|show|give|use|write|add|include|explain|point|get|stick|stop"
    r"|keep|leave"
    r"|remove|put|cut|cap|strip|drop|skip|avoid|try|make|be|talk|focus|pick|choose|check|read|watch|call|format|quote"
    r"|cite|sort|split|move|round|convert|return|answer|address|spell|describe|compare|limit|replace|rename"
    r"|handle)\s",
    IGNORECASE,
)

# A question for information, which may use the words of a wish ("how do I make it shorter?").
_PLAIN_QUESTION = pattern(
    r"(?:^|[.:,] )(?:and |ok(?:ay)?,? |so )?(?:how (?:do|does|would|can|many|much|long)|what|who|when|where"
    r"|which|is|are|do|does)\b.*",
    IGNORECASE,
)
_AFTERTHOUGHT = pattern(
    r"\b(?:but|though|only thing|one thing|nit|next time|in (?:the )?future|maybe|perhaps|slightly|a (?:bit"
    r"|touch|little|tad) (?:less|more|\w+er)"
    r"|pls|please|aber|nur|mais|pero|ma|for the next)\b",
    IGNORECASE,
)
_SHOUTED = pattern(r"\b[A-Z]{4,}\b")
_NO_LETTERS = pattern(r"\W+")
_WISHES = ("reply.revise", "reply.imperative", "reply.reproached", "reply.defect")
_NEXT_STEP = pattern(
    r"^(?:(?:ok(?:ay)?|great|good|yes|yep|perfect|thanks|cool|nice|alright|right|so|and)[,.!]? )*"
    r"(?:(?:can|could|would|will) you (?:please |pls )?)?(?:also|next(?! time)|now|then|go ahead|open a|close the"
    r"|deploy|merge|release|push|commit|save it"
    r"|squash|tag|file|do the same|let's (?:build|do|start|go|ship|use|move)|(?:please |pls )?(?:also "
    r"|now )?(?:create|prepare|set up|schedule|invite|send) )\b"
    r"|\b(?:too|as well|the same for \w+.*)[.!]?$|^(?:next(?! time)|number two|question two|another)\b",
    IGNORECASE,
)


def reply_features(task: str, answer: str, reply: str) -> dict[str, float]:
    """Kinds of evidence in a person's reply → strength. ``reply`` is free of orders to the judge."""
    text = plain(reply).strip()
    if not text:
        return {"reply.silent": 1.0}
    if answers_a_question(answer, text):
        # Whatever the words, the person says what the assistant wanted to know.
        return {"reply.answers_a_question": 1.0}
    lines = sentences(text)
    found = _kinds(text, lines)
    if _opens_well(lines):
        found["reply.opens_well"] = 1.0
        if _AFTERTHOUGHT.search(text) and not KINDS["sarcasm"].search(text):
            # "Good, but shorter next time": the wish qualifies the praise, it does not take it back.
            found["reply.praise_then_wish"] = 1.0
            found |= {n: 0.4 * found[n] for n in _WISHES if n in found}
    found |= _balance(found)
    found |= _relation(task, answer, text, lines)
    if "reply.restates_task" in found and ("reply.only_asks" in found or _squash(task) == _squash(text)):
        found["reply.reasks"] = 1.0
    return found


def _kinds(text: str, lines: list[str]) -> dict[str, float]:
    """The lexicon's kinds, each looked for in the sentences that can carry it."""
    found: dict[str, float] = {}
    # A sentence that asks for the next piece of work says nothing against this one.
    kept = "\n".join(line for line in lines if not _NEXT_STEP.search(line))
    about = "\n".join(line for line in kept.splitlines() if not _PLAIN_QUESTION.search(line))
    negative, wishes = _unapproving(kept), _unapproving(about)
    praise = "\n".join(_given_praise(line) for line in lines)
    sources = dict.fromkeys(NEGATIVE, negative) | {"praise": praise, "revise": wishes, "defect": wishes}
    for kind, words_of_kind in KINDS.items():
        hits = sum(1 for _ in words_of_kind.finditer(sources.get(kind, text)))
        if hits:
            found[f"reply.{kind}"] = 1.0 if hits == 1 else 1.4
    if NEGATED_DEFECT.search(text):
        found.setdefault("reply.success", 1.0)
    if NEGATED_PRAISE.search(text):
        found["reply.defect"] = max(found.get("reply.defect", 0.0), 1.2)
    if kept != "\n".join(lines):
        found["reply.next_step"] = 1.0
    if KEEP_ON.search(text):
        found["reply.praise"] = max(found.get("reply.praise", 0.0), 1.0)
    if _IMPERATIVE.search(KEEP_ON.sub(" ", about)):
        found["reply.imperative"] = 1.0
    if any(f"reply.{p}" in found for p in POSITIVE):
        # A story around good news: its asides weigh less than the news.
        found |= {f"reply.{k}": 0.5 for k in NEUTRAL if f"reply.{k}" in found}
    return found


def _opens_well(lines: list[str]) -> bool:
    first = _given_praise(lines[0]) if lines else ""
    well = any(KINDS[k].search(first) for k in ("praise", "success", "conceded")) or KEEP_ON.search(first)
    return bool(well) and not _ASKS.search(first)


def _unapproving(text: str) -> str:
    """The text without what only sounds like a complaint or a wish."""
    return NEGATED_DEFECT.sub(" ", CONFIRMS.sub(" ", KEEP_ON.sub(" ", text)))


def _given_praise(line: str) -> str:
    """The sentence without praise that is quoted, denied, wished for, or taken back in the same breath.

    Praise in quotation marks is an example or the answer's own: "start with 'well done'".
    """
    text = _QUOTED.sub(" ", line)
    kept = KEEP_ON.findall(text)
    if turn := TURNS.search(text):
        after = text[turn.end() :]
        objects = any(KINDS[k].search(_unapproving(after)) for k in ("rejected", "reproached", "defect"))
        if objects and not SOFTENED.search(after):
            text = after
    return " ".join([NEGATED_PRAISE.sub(" ", WISHED.sub(" ", KEEP_ON.sub(" ", text))), *kept])


def _balance(found: dict[str, float]) -> dict[str, float]:
    """Which sides the evidence is on: one alone says more than its parts."""
    positive, negative, neutral = (any(f"reply.{k}" in found for k in side) for side in (POSITIVE, NEGATIVE, NEUTRAL))
    sides = {
        "reply.only_positive": positive and not negative,
        "reply.only_negative": negative and not positive,
        "reply.only_neutral": neutral and not positive and not negative,
        "reply.only_imperative": "reply.imperative" in found and not positive and not neutral,
        "reply.no_kind": not positive and not negative and not neutral and "reply.imperative" not in found,
    }
    return {name: 1.0 for name, holds in sides.items() if holds}


def _relation(task: str, answer: str, text: str, lines: list[str]) -> dict[str, float]:
    """Shape of the reply and what it shares with the task and the answer."""
    said, asked = words(text), words(task)
    repeated = len(asked & said) / len(asked) if asked else 0.0
    shape = {
        "reply.only_asks": all(_ASKS.search(line) for line in lines),
        "reply.quotes_answer": _quotes_answer(text, answer),
        "reply.terse": len(text.split()) <= 4,
        "reply.exclaims": "!" in text,
        "reply.shouts": bool(_SHOUTED.search(text)) and not text.isupper(),
        "reply.elsewhere": not said & (asked | words(answer)) and len(text.split()) > 6,
    }
    found = {name: 1.0 for name, holds in shape.items() if holds}
    if repeated >= 0.5:
        found["reply.restates_task"] = min(1.4, 2 * repeated)
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


def _quotes_answer(text: str, answer: str) -> bool:
    said = _squash(answer)
    return any(len(phrase.split()) >= 2 and _squash(phrase) in said for phrase in quotes(text))


def _squash(text: str) -> str:
    return _NO_LETTERS.sub(" ", text.lower()).strip()
