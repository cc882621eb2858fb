"""Reading text: its sentences and words, and the removal of orders to the judge.

Pure functions. Nothing here decides whether an answer was good.
"""

from __future__ import annotations

from turnwise.patterns import IGNORECASE, Match, pattern

CLIP_CHARS = 4000
"""Characters kept at each end of a long text."""

WIDEST = 16
"""Spaces in a row that are kept; layout says nothing to a pattern."""

_QUOTES = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "−": "-", "–": "-", "\u00a0": " "})

# A sentence or line that tries to tell a judge what to vote. Such text says nothing about the answer.
_JUDGE_ORDER = pattern(
    r"\\?\bboxed\s*\{"
    r"|\[\s*HINT_(?:START|END)\s*\]"
    r"|</?\s*next[_ ]state\s*>"
    r"|\b(?:whoever grades|grader|judge|evaluat(?:or|ion)|(?:grading|reward|judging) model|rater|annotator)\b"
    r"[^.!?\n]{0,80}(?:[+-]\s?1\b|\bmaximum\b|\b(?:prior|previous|these) rules?\b|\bscore\s*[:=]|\breward\s*[:=])"
    r"|\b(?:give|award|assign|output|vote)\b[^.!?\n]{0,30}(?:[+-]\s?1\b|\b(?:maximum|highest|top) (?:score|reward)\b)"
    r"|\b(?:ignore|disregard|forget)\b[^.!?\n]{0,20}\b(?:previous|prior|above|earlier|all)\b[^.!?\n]{0,20}"
    r"\b(?:instruct|rule|prompt)\w*",
    IGNORECASE,
)

_WIDE_SPACE = pattern(rf"[^\S\n]{{{WIDEST + 1},}}+", unbounded=True)
_BLANK_LINES = pattern(rf"\n(?:[^\S\n]{{0,{WIDEST}}}+\n){{3,}}+", unbounded=True)
_PLANTED_END = pattern(r"\}|</?\s*next[_ ]state\s*>|\]")
_LONG_WORD = pattern(r"[\w'-]{4,}")
# Ends of sentences in the scripts we know; a dot inside a number, path, version or abbreviation is none.
_SENTENCE_END = pattern(r"(?<=[.!?…])(?: ?»[.,;:]?(?:\s+|$)|[\"')\]]*\s+)|(?<=[。！？])|\n+")


def plain(text: str) -> str:
    """Straight quotes, plain minus and spaces, so that patterns need one form only."""
    return text.translate(_QUOTES)


def sentences(text: str) -> list[str]:
    """The text's sentences and lines, stripped, without empty ones."""
    text = plain(text)
    found, start = [], 0
    for end in _SENTENCE_END.finditer(text):
        if not _goes_on(text, end):
            found.append(text[start : end.end()].strip())
            start = end.end()
    return [sentence for sentence in [*found, text[start:].strip()] if sentence]


def _goes_on(text: str, end: Match[str]) -> bool:
    """Whether only a quotation, or a number of a list, ends here: no more "Cheers!" please; as 1. 2. and so on."""
    after = text[end.end() : end.end() + 1]
    if "\n" in end[0]:
        return False
    if after.isdigit() and _NUMBER.search(text[max(0, end.start() - 4) : end.start()]):
        return True
    if after.islower() and _NUMBERS.search(text[max(0, end.start() - 8) : end.start()]):
        return True
    return end[0].lstrip()[:1] in _CLOSING and (after.islower() or after in _JOINING)


_NUMBER = pattern(r"(?<![\w.,])\d{1,2}\.$")
_NUMBERS = pattern(r"(?<![\w.,])\d{1,2}\.\s\d{1,2}\.$")
_CLOSING = frozenset("\"')]»")
_JOINING = frozenset(",;:-")


def without_judge_orders(text: str) -> tuple[str, bool]:
    """The text without sentences that order a verdict, and whether there were any."""
    kept, found = [], False
    for sentence in sentences(text):
        if not _JUDGE_ORDER.search(sentence):
            kept.append(sentence)
            continue
        found = True
        # What follows a planted tag or box on the same line may still be the person's own words.
        rest = _PLANTED_END.split(sentence)[-1].strip(" .,;:-")
        if rest and rest != sentence.strip(" .,;:-") and not _JUDGE_ORDER.search(rest):
            kept.append(rest)
    return "\n".join(kept), found


def clip(text: str) -> str:
    """The beginning and the end of a long text, without long runs of white space.

    That is where verdicts stand, and what bounds the time of matching: no pattern of the judge sees more.
    """
    text = collapse(text)
    return text if len(text) <= 2 * CLIP_CHARS else f"{text[:CLIP_CHARS]}\n{text[-CLIP_CHARS:]}"


def collapse(text: str) -> str:
    """The text with at most `WIDEST` spaces, and at most two blank lines, in a row."""
    return _BLANK_LINES.sub("\n\n\n", _WIDE_SPACE.sub(" " * WIDEST, text))


def words(text: str) -> set[str]:
    """Lower-case words of at least four letters or digits: a crude measure of what a text is about."""
    return set(_LONG_WORD.findall(text.lower()))
