"""Quotations that a person sets between marks: more than a few words between them are somebody else's.

A quotation may hold marks of its own kind and empty lines: it ends where the marks balance, and one that has no end on
its line goes on to the last mark of its kind, or to the end of the text. A short one, a *phrase*, may also be what
answers are to say ("close with "Over to you, folks!""). It is *hidden*, written in private signs, so that nothing that
reads the text meets a word or a mark of it, until it is clear whose it is. Pure functions of linear time.
"""

from __future__ import annotations

from collections.abc import Callable

from turnwise.patterns import Match, pattern

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
_NO_PHRASE = pattern(r"[\"“”„«»「」『』《》【】〝〞〟<>\[\]{}\\|\n\r]|(?<!\w)['‘’‚]|['‘’‚](?!\w)")
"""A mark that opens or closes something, rather than stand for a letter, and the end of a line."""
_BASIC, _OTHER, _MOST_HIDDEN = 0x100000, 0xE0000, "\U0001fffe"
"""What is added to the number of a sign to hide it: of those below 0x10000, and of those behind them."""
_HIDDEN = pattern("[\U000f0000-\U0010ffff]")
_WHOLE = pattern('"[\U000f0000-\U0010ffff]{1,100}"')
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
NO_SPACES = "\u2e80"
"""Most scripts from here on set no spaces between words."""
MAX_APOSTROPHES = 280
"""Characters among which the end of a quotation in single marks is looked for."""


def without_quotations(text: str) -> str:
    """The text with ``""`` for each quotation; a few quoted words stay, they name what is meant."""
    return _without(text, lambda quoted: "")


def hiding_phrases(text: str) -> str:
    """The same, with the phrases among them hidden between their marks."""
    text = without_hidden(text)  # nobody else writes such signs
    return _without(text, lambda quoted: _hidden(quoted) if _is_phrase(quoted) else "")


def without_hidden(text: str) -> str:
    """The text without its hidden phrases: ``""`` for each."""
    return _HIDDEN.sub("", text)


def shown(text: str) -> tuple[str, list[str]]:
    """The text with its hidden phrases as they were written, and these. What was cut out of one stays away."""
    phrases: list[str] = []

    def show(found: Match[str]) -> str:
        phrases.append("".join(map(_plainly, found[0][1:-1])).strip())
        return f'"{phrases[-1]}"'

    return without_hidden(_WHOLE.sub(show, text)), phrases


def _hidden(phrase: str) -> str:
    return "".join(chr(ord(c) + (_BASIC if ord(c) < 0x10000 else _OTHER)) for c in phrase)


def _plainly(sign: str) -> str:
    return chr(ord(sign) - (_BASIC if ord(sign) >= _BASIC else _OTHER))


def _without(text: str, instead: Callable[[str], str]) -> str:
    """The text with what stands ``instead`` of each quotation that is somebody else's, between straight marks."""
    kept: list[str] = []
    at = 0
    while opener := _OPENER.search(text, at):
        begins = opener.start()
        end = _end(text, begins) if _opens(text, begins) else begins + 1
        quoted, closed = text[begins + 1 : end - 1], text[end - 1] in _CLOSES[text[begins]]
        kept.append(text[at:begins])
        if end > begins + 1 and _is_foreign(quoted):
            kept.append(f'"{instead(quoted) if closed else ""}"')
        else:
            kept.append(text[begins:end])
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


def _is_phrase(quoted: str) -> bool:
    """Whether a quotation may be what answers are to say: short, of one sentence, without marks of any other kind."""
    bare = any(c >= NO_SPACES and c.isalpha() for c in quoted)
    most = MAX_SAID_BARE if bare else MAX_SAID_SIGNS
    inner = quoted.strip().rstrip("".join(_STOPS) + "… \u00a0\u202f")
    if not inner or len(quoted.split()) > MAX_SAID or len(quoted) > most or max(quoted) >= _MOST_HIDDEN:
        return False
    return not _NO_PHRASE.search(quoted) and not any(c in _ENDS or c == "…" for c in inner)


def _is_foreign(quoted: str) -> bool:
    words = len(quoted.split())
    if words > MAX_NAMED or "\n" in quoted or (len(quoted) > MAX_SIGNS and max(quoted) >= NO_SPACES):
        return True
    ended = quoted.strip()[-1:] in _ENDS
    stopped = any(c in _STOPS for c in quoted)
    return (stopped and (words >= 3 or (words == 1 and not quoted.isascii()))) or (ended and words >= 2)
