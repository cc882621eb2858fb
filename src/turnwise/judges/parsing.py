"""Strict reading of a judge model's reply: the score in the last box, the hint between its markers, the majority.

Pure functions. What cannot be read is None, never 0: an unreadable vote is no opinion (P §4.1, appendix C).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from turnwise.messages import clean
from turnwise.patterns import DOTALL, MULTILINE, anchored, between, pattern
from turnwise.types import Vote

MIN_HINT_CHARS = 10
"""A hint must be longer than this (P §4.2, step 2)."""

_BOX = pattern(r"\\boxed\s*\{((?:[^{}]|\{[^{}]*\})*)\}", unbounded=True)
_INNER = pattern(r"\\(?:text|mathrm|mathbf|textbf|mathit|rm|bf)\s*\{([^{}]*)\}", unbounded=True)
_SCORE = anchored(r"([+-]?)\s*([01])(?:\.0+)?", unbounded=True)
OPEN_HINT, CLOSE_HINT = "[HINT_START]", "[HINT_END]"
_FENCED = pattern(
    r"<<<UNTRUSTED ([0-9a-f]{16})>>>.*?(?:<<<END \1>>>|\Z)|^```.*?(?:^```|\Z)|^>.*?$",
    DOTALL | MULTILINE,
    unbounded=True,
)
_SIGNS = str.maketrans({"−": "-", "–": "-", "—": "-", "﹣": "-", "－": "-", "＋": "+", "\u00a0": " ", "\u2009": " "})


def parse_score(reply: str) -> int | None:
    """The score of the last box outside of quoted text: +1, 0 or -1; None when that box is missing or unreadable."""
    boxes = _BOX.findall(without_quotes(reply))
    return _score(boxes[-1]) if boxes else None


def parse_hint(reply: str) -> str | None:
    """The last hint between [HINT_START] and [HINT_END] outside of quoted text, or None when there is none."""
    text = without_quotes(reply)
    hints = [
        text[start + len(OPEN_HINT) : end - len(CLOSE_HINT)] for start, end in between(text, OPEN_HINT, CLOSE_HINT)
    ]
    return clean(hints[-1]).strip() or None if hints else None


def parse_vote(reply: str, with_hint: bool) -> Vote:
    """A reply as a vote with its score and, where one was asked for, its hint."""
    return Vote(parse_score(reply), hint=parse_hint(reply) if with_hint else None, raw=reply)


def without_quotes(reply: str) -> str:
    """The reply without what the model repeats of its material: our fence, code fences and quoted lines."""
    return _FENCED.sub("\n", reply)


def majority(votes: Iterable[int | None]) -> int | None:
    """The score most valid votes agree on; 0 on a tie for the first place; None when no vote is valid (P §4.1)."""
    counts = Counter(v for v in votes if v is not None).most_common()
    if not counts:
        return None
    return 0 if len(counts) > 1 and counts[0][1] == counts[1][1] else counts[0][0]


def select_hint(votes: Sequence[tuple[int | None, str | None]]) -> str | None:
    """The longest hint of more than ten characters among votes with score +1, or None (P §4.2, step 2)."""
    good = [hint for score, hint in votes if score == 1 and hint is not None and len(hint) > MIN_HINT_CHARS]
    return max(good, key=len) if good else None


def _score(content: str) -> int | None:
    text = content.translate(_SIGNS)
    while (inner := _INNER.sub(r"\1", text)) != text:
        text = inner
    text = text.replace("\\,", " ").replace("\\;", " ").replace("$", "").strip(" {}")
    match = _SCORE.fullmatch(text.strip())
    if match is None:
        return None
    return -int(match[2]) if match[1] == "-" else int(match[2])
