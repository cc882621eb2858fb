"""Quotations that a person sets between marks: more than a few words between them are somebody else's.

A short one may also be words that answers are to say ("close with "Over to you, folks!""). Nothing is judged by these
all the same: whether a sentence is a wish is told without them.

A quotation may hold marks of its own kind and empty lines: it ends where the marks balance, and one that has no end on
its line goes on to the last mark of its kind, or to the end of the text. Pure functions of linear time.
"""

from __future__ import annotations

from collections.abc import Callable

from turnwise.patterns import pattern

_CLOSES = {
    '"': '"“”',
    "'": "'",
    "“": '”"',
    "”": '”"',
    "„": '“”"',
    "‘": "’",
    "’": "’",
    "‚": "‘’",
    "«": "»",
    "»": "«",
    "「": "」",
    "『": "』",
    "《": "》",
    "【": "】",
    "〝": "〞〟",
}
_BOTH = frozenset("\"'”’»")
"""Marks that open in one place and close in another."""
_APOSTROPHES = frozenset("'‘’‚")
"""Marks that also stand for a letter left out: without an end they open nothing."""
_OPENER = pattern("[" + "".join(_CLOSES) + "]")
_MARKS = pattern("[" + "".join(_CLOSES) + "".join(_CLOSES.values()) + "]")
_NESTED = pattern(r"[\"“”„«»「」『』《》【】〝〞〟]|(?<!\w)['‘’‚]|['‘’‚](?!\w)")
"""A mark that opens or closes a quotation, rather than stand for a letter."""
_ENDS = frozenset(".!?。！？")
_STOPS = frozenset(".,;:!?。，；：！？、،؟")
MAX_NAMED = 3
"""Words between marks that name what is meant ("Dear Ann"); more are a quotation."""
MAX_SIGNS = 10
"""The same in characters, where a script sets no spaces between its words."""
MAX_SAID = 8
"""Words between marks that may be what answers are to say."""
MAX_SAID_SIGNS = 80
MAX_SAID_BARE = 24
"""The same in characters, of words in any script, and of those in one that sets no spaces."""
MAX_NESTED = 4
_NO_SPACES = "\u2e80"
MAX_APOSTROPHES = 280
"""Characters among which the end of a quotation in single marks is looked for."""


def without_quotations(text: str) -> str:
    """The text with ``""`` for each quotation; a few quoted words stay, they name what is meant."""
    return _without(text, _is_foreign)


def without_long_quotations(text: str) -> str:
    """The text with ``""`` for each quotation that cannot be words which answers are to say."""
    return _without(text, _is_no_phrase)


def _without(text: str, foreign: Callable[[str, str], bool]) -> str:
    kept: list[str] = []
    at = 0
    while opener := _OPENER.search(text, at):
        begins = opener.start()
        end = _end(text, begins) if _opens(text, begins) else begins + 1
        mark, quoted = text[begins], text[begins + 1 : end - 1]
        closed = text[end - 1] in _CLOSES[mark]
        whole = end > begins + 1 and (foreign(quoted, mark) or (not closed and _is_foreign(quoted, mark)))
        kept += [text[at:begins], '""' if whole else text[begins:end]]
        at = end
    return "".join([*kept, text[at:]])


def _opens(text: str, at: int) -> bool:
    """Whether a mark that also closes or measures (``5"``) opens something here."""
    mark, before, after = text[at], text[at - 1 : at], text[at + 1 : at + 2]
    if mark in _BOTH or mark in _APOSTROPHES:
        if before == after == "`":
            return False
        apart = not before.isalnum() or (mark == '"' and not before.isascii())
        return apart and after != "" and not after.isspace()
    return True


def _end(text: str, at: int) -> int:
    """Where the quotation ends that this mark opens; behind the mark where it is none."""
    mark = text[at]
    line_end = text.find("\n", at)
    line_end = len(text) if line_end < 0 else line_end
    if mark in _APOSTROPHES:
        line_end = min(line_end, at + MAX_APOSTROPHES)
    depth, end = 1, -1
    for found in _MARKS.finditer(text, at + 1, line_end):
        place, sign = found.start(), found[0]
        if sign in _CLOSES[mark] and _closes(text, place, mark):
            depth -= 1
            if depth <= 0:
                end = place + 1
        elif sign == mark and _opens(text, place):
            if end >= 0:
                return end  # the next quotation; until there any closing mark may have been the last
            depth += 1
            if mark in _APOSTROPHES and depth > MAX_NESTED:
                break
    if end >= 0 or mark in _APOSTROPHES:
        return end if end >= 0 else at + 1
    last = max(text.rfind(sign, at + 1) for sign in _CLOSES[mark])
    return last + 1 if last > line_end else len(text)


def _closes(text: str, at: int, mark: str) -> bool:
    if mark in _APOSTROPHES:
        return not text[at + 1 : at + 2].isalnum()
    after = text[at + 1 : at + 2]
    return text[at] not in (mark, '"') or not (text[at - 1].isspace() or (after.isascii() and after.isalnum()))


def _is_no_phrase(quoted: str, mark: str) -> bool:
    """Whether a quotation is more than a phrase: long, of several sentences, or with a quotation in it."""
    if not _is_foreign(quoted, mark):
        return False
    most = MAX_SAID_BARE if max(quoted) >= _NO_SPACES else MAX_SAID_SIGNS
    if len(quoted.split()) > MAX_SAID or len(quoted) > most or "\n" in quoted:
        return True
    # A space behind an end ends the sentence, and with it the quotation would be cut; but for the French "!\u00a0»".
    whole = quoted[-1:].isspace() and mark != "«"
    inner = quoted.rstrip() if whole else quoted.rstrip("".join(_STOPS) + "… \u00a0\u202f")
    return not inner.strip() or any(c in _ENDS for c in inner) or bool(_NESTED.search(quoted))


def _is_foreign(quoted: str, mark: str) -> bool:
    words = len(quoted.split())
    if words > MAX_NAMED or "\n" in quoted or (len(quoted) > MAX_SIGNS and max(quoted) >= _NO_SPACES):
        return True
    ended = quoted.strip()[-1:] in _ENDS
    stopped = any(c in _STOPS for c in quoted)
    return (stopped and (words >= 3 or (words == 1 and not quoted.isascii()))) or (ended and words >= 2)
