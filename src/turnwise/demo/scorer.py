"""Scores how well an answer matches a persona's preference: 0, 0.25, 0.5, 0.75 or 1 (as in P, appendix C.3).

This is the demo's measuring stick. It sees the answer and the homework alone, never a reply or a verdict, imports
nothing else of turnwise, and shares no phrases with the simulator and the judge.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Literal

LEVELS = (0.0, 0.25, 0.5, 0.75, 1.0)

HANDY = 40
"""Words up to which an answer is one for a small screen."""
_UPSHOT = re.compile(r"(?i)in short\b")
_LEADING = "*_#> \n\"'"

BRIEF, TOLERABLE = 40, 70
"""Words of a homework answer up to which it is brief, and up to which it is tolerable."""

_FUNCTION_WORDS_TEXT = (
    "a an and are as at be because but by can do each every for from had has have he her him his how i if in into "
    "is it its left makes more my of on one or out per she so than that the their them then there they this to "
    "total up was we were what when which who will with would you your"
)
_FUNCTION_WORDS = frozenset(_FUNCTION_WORDS_TEXT.split())
_MARKUP = re.compile(
    r"(?m)\*\*|^\s{0,3}#{1,6}\s|^[^\S\n]*(?:[-*+•–]|\(?\d{1,2}[.)]|[a-h]\))\s|^\|.*\||`{3}"  # bold, headings, items
    r"|\$\$|\\(?:frac|text|times|begin|boxed|cdot|[\[(])"  # TeX
)
_COLUMN = re.compile(r"(?m)^(?=[^a-z\n]*$)[^\d\n]*\d[^=\n]*=.*$")  # a line that is an equation and nothing else
_SCHEMATIC = re.compile(
    r"(?i)step[- ]by[- ]step|\bstep \d|\bstep (?:one|two|three)\b|\bfirst(?:ly)?, |\bsecond(?:ly)?, |\bfinally, "
    r"|break(?:ing)? (?:it|this|that|the \w+) (?:down|into)|\bfollow these\b"
)
_STILTED = re.compile(
    r"(?i)\A\W*(?:certainly|absolutely|sure thing|of course|great question|i'd be|i would be|i'm (?:sorry|glad|happy)"
    r"|here (?:is|are)|here's|let us|let's|in order to"
    r"|to (?:\w+ )?(?:solve|find|calculate|determine|answer|compute|work|get|figure))\b"
    r"|\b(?:we (?:need|have) to|we can|it is important|in summary|to summari[sz]e|the final answer|as a chatbot"
    r"|artificial intelligence|please (?:note|provide|let me know)|this means that|given (?:that|the))\b"
)
_WARM = re.compile(
    r"(?i)\b(?:well done|good (?:job|work|effort|thinking|start)|great|nicely|fantastic|excellent|wonderful|super"
    r"|lovely|brilliant|terrific|proud of|impress\w+|keep (?:it|going|up)|bravo|amazing|awesome|perfect(?:ly)?"
    r"|love (?:how|that|the way|your)|careful(?:ly)? (?:work|done)|almost there|so close|don't worry|glad)"
)
_TO_PUPIL = re.compile(r"(?i)\b(?:you|your|you've|you're|yours)\b")
_ABOUT_WORK = re.compile(
    r"(?i)'s (?:\w+ )?(?:answer|solution|work|approach|reasoning|calculation)|\bthe (?:pupil|student)\b"
)
_COLD = re.compile(
    r"(?i)\b(?:terrible|awful|sloppy|stupid|lazy|poor work|disappoint\w+|careless|unacceptable|nonsense|hopeless)\b"
)
_SELF = re.compile(r"(?i)\b(?:my name is|i'm here to help|as a teacher, i|dear sir|best regards|\[your name\])")
_WORD = re.compile(r"[^\W\d_]+(?:'[a-z]+)?")
_PARAGRAPH = re.compile(r"\n\s*\n")
_PLAIN_WORD = re.compile(r"(?<!\S)[A-Za-z'’]+(?=[\s.,;:!?]|$)")
_QUANTITY = re.compile(r"\d[\d,]*(?:\.\d+)?")
_LONG_WORD = re.compile(r"[a-z]{4,}")


def score(persona: Literal["reader", "student", "teacher"], answer: str, question: str, solution: str = "") -> float:
    """The score of ``answer`` to ``question``; ``solution``: the pupil's (teacher), or the right number (student)."""
    if is_gibberish(answer):
        return 0.0
    if persona == "reader":
        return _reader(answer)
    return _student(answer, question, solution) if persona == "student" else _teacher(answer, question, solution)


def is_gibberish(answer: str) -> bool:
    """Whether the text is no language on its face: empty, symbols, babble without function words, or a loop.

    Fluent nonsense passes: only a language model sees it, which is why the report measures likelihood beside the score.
    """
    words = _WORD.findall(answer.lower())
    dense = "".join(answer.split())
    if not words:
        return True
    letters = sum(character.isalnum() or character in ".,;:!?'\"()=+-*/%$€£#" for character in dense)
    if letters < 0.8 * len(dense) or max(map(len, words)) > 28:
        return True
    if _loops(words):
        return True
    return len(words) >= 8 and sum(word in _FUNCTION_WORDS for word in words) < 0.12 * len(words)


def is_on_topic(answer: str, question: str, solution: str = "") -> bool:
    """Whether the answer takes up its problem: a quantity of it, or two of its content words."""
    quantities = _quantities(answer) & (_quantities(question) | _quantities(solution))
    return bool(quantities) or len(_content_words(answer) & _content_words(question)) >= 2


def _reader(answer: str) -> float:
    if not _UPSHOT.search(answer):
        return 0.0
    words = len(answer.split())
    faults = 0 if _UPSHOT.match(answer.lstrip(_LEADING)) else 2
    faults += 2 if len(_UPSHOT.findall(answer)) > 1 else 0  # says the words again, or says how to say them
    return LEVELS[max(1, 4 - faults - (0 if words <= HANDY else 1))] if words > 2 else LEVELS[1]


def _student(answer: str, question: str, solution: str) -> float:
    if not is_on_topic(answer, question, solution):
        return 0.0
    words = len(answer.split())
    faults = 0
    faults += 0 if words <= BRIEF else 1 if words <= TOLERABLE else 2
    faults += 2 if _MARKUP.search(answer) else 0
    faults += 1 if _SCHEMATIC.search(answer) else 0
    faults += 1 if _STILTED.search(answer.strip()) else 0
    faults += 1 if len(_COLUMN.findall(answer)) >= 2 or len(_PARAGRAPH.findall(answer.strip())) >= 2 else 0
    faults += 1 if len(_PLAIN_WORD.findall(answer)) < 0.5 * words else 0  # mostly sums
    best = 4 if words >= 8 else 2 if words >= 4 else 1  # a bare number is no homework answer
    return LEVELS[max(0, best - faults)]


def _teacher(answer: str, question: str, solution: str) -> float:
    named = _quantities(answer) & (_quantities(solution) | _quantities(question))
    specific = min(2, len(named))
    friendly = int(bool(_WARM.search(answer))) + int(bool(_TO_PUPIL.search(answer)))
    points = specific + friendly - int(bool(_COLD.search(answer))) - int(bool(_SELF.search(answer)))
    if not _TO_PUPIL.search(answer) and not _ABOUT_WORK.search(answer):
        points = min(points, 1)  # solves the problem once more, which is no comment
    words = len(answer.split())
    return LEVELS[max(0, min(points, 1 if words < 6 else 2 if words < 12 else 4))]


def _quantities(text: str) -> set[str]:
    return {number.replace(",", "").rstrip(".") for number in _QUANTITY.findall(text)}


def _content_words(text: str) -> set[str]:
    return {word.rstrip("s") for word in _LONG_WORD.findall(text.lower()) if word not in _FUNCTION_WORDS}


def _loops(words: list[str]) -> bool:
    """A word three times in a row, or one three-word phrase that makes up half of the text."""
    if any(a == b == c for a, b, c in zip(words, words[1:], words[2:], strict=False)):
        return True
    trigrams = Counter(zip(words, words[1:], words[2:], strict=False))
    most = max(trigrams.values(), default=0)
    return most >= 4 and 3 * most > 0.5 * len(words)
