"""Lines that a program or a copy laid out: rows with one head, rulers and boundaries in pairs, drawn frames.

People type bullets and numbers; everything else that several lines begin with (``[1]``, ``D-7.2``, ``Feed item 3:``,
``%%``) was made or copied, whatever the lines say. Nothing here knows what was said. Pure functions of linear time.
"""
# ruff: noqa: SIM905  (word lists read better as text)

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable

from turnwise.judges.sources.visible import STOOD
from turnwise.patterns import anchored, pattern

_BULLETS = frozenset("- -- * + • – — · ‣ ~ > -> => & / # ## ### #### ##### ###### ... … ! !! ? ??".split())
"""Signs with which people begin points, headings and sentences, or that they type behind a word ("in -> out").

At the head of several lines arrows and tildes are no person's all the same (`_ROW_SIGNS`), nor are pictures.
"""
_SPEAKS = frozenset(".!?…,:;()'\"`´")
"""Signs that people set alone on a line: "...", "?!", ":)"."""
_ROW_SIGNS = frozenset("|[]{}<>=~^\\")
"""In the first word of several lines these are no person's."""
_NUMBER = pattern(r"\d+")
_NUMBERED = anchored(r"[(\[]?(?:\d{1,3}|[A-Za-z])[.):]{1,2}")
_HEAD = anchored(r"([^:：|\n]{1,40})[:：|](?:\s|$)")
_BOUNDARY = anchored(r"([-=~+:])\1\S{2,80}")
_EMOJI = 0x1F000
_PICTURES = ("So", "Sm")
_DRAWN = pattern("[\u2016\u2500-\u25ff\u2669-\u266f\u275b-\u2775]")
"""Double bars, box drawing, blocks, geometric shapes, notes and ornamental marks."""
_SHAPES = "\u25a0"
"""From here on a drawn sign may be a bullet."""
RULER = "ruler "
ROW = "row "


def line_kind(line: str) -> str:
    """What a line shares with others of one layout; "" for a line as people type it.

    It begins with `RULER` for a line that encloses, with `ROW` for one that has the head of a row.
    """
    bare = line.strip()
    if not bare or bare == STOOD:
        return ""
    drawn = "".join(bare.split())
    if len(drawn) >= 2 and len(set(drawn)) == 1 and not (drawn[0].isalnum() or drawn[0] in _SPEAKS):
        return RULER + drawn[0] if ord(drawn[0]) < _EMOJI else ""
    if " " not in bare and _BOUNDARY.match(bare):
        return RULER + bare.strip("-=~+:")
    word, sign = [*bare.split(maxsplit=2), ""][:2]
    if _NUMBERED.fullmatch(word) or "`" in word:
        return ""
    head = _HEAD.match(bare)
    if head and _NUMBER.search(head[1]):
        return f"{ROW}{_NUMBER.sub('0', head[1])}:"
    if _quotes(word) or _ROW_SIGNS & set(word) or len(_NUMBER.findall(word)) >= 2:
        return ROW + _NUMBER.sub("0", word)
    return f"{ROW}{_NUMBER.sub('0', word)} {sign}" if word[-1].isalnum() and _quotes(sign) else ""


def _quotes(word: str) -> bool:
    """Whether a word is a sign that none lists with and none ends a sentence with: ``%%``, ``§``, ``»``."""
    if not word or any(c.isalnum() for c in word) or word in _BULLETS or _SPEAKS.issuperset(word):
        return False
    return word.isascii() or unicodedata.category(word[0]) not in _PICTURES


def last_lines(text: str) -> dict[str, int]:
    """Where the last line of each kind begins, for the kinds that several lines are of."""
    last: dict[str, int] = {}
    several: set[str] = set()
    at = 0
    for line in text.split("\n"):
        if kind := line_kind(line):
            if kind in last:
                several.add(kind)
            last[kind] = at
        at += len(line) + 1
    return {kind: last[kind] for kind in several}


def layout_end(text: str, at: int, last: dict[str, int]) -> int:
    """Where the layout ends whose first line begins here, by `last_lines`; ``at`` where none does.

    Between two rulers all is foreign, and between two rows. What the last row says may go on to the next empty line.
    """
    kind = line_kind(text[at : _line_end(text, at)])
    begins = last.get(kind, at)
    if begins <= at:
        return at
    end = text.find("\n\n", begins) if kind.startswith(ROW) else _line_end(text, begins)
    return len(text) if end < 0 else min(end + 1, len(text))


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def share_a_head(texts: Iterable[str]) -> set[str]:
    """The kinds of first lines that several of the texts begin with."""
    kinds = Counter(first_kind(text) for text in texts)
    return {kind for kind, n in kinds.items() if kind and n > 1}


def first_kind(text: str) -> str:
    return line_kind(text.lstrip().partition("\n")[0])


def without_frames(text: str) -> str:
    """The text without what drawn signs enclose (``▶ … ◀``, ``♪ … ♪``); alone within a line, one heads the rest of it.

    Shapes that begin lines are bullets, and frame nothing.
    """
    signs = list(_DRAWN.finditer(text))
    if all(sign[0] >= _SHAPES and not _stands_within(text, sign.start()) for sign in signs):
        return text
    begins, end = signs[0].start(), signs[-1].end()
    if len(signs) == 1 and _stands_within(text, begins) and text[end : _line_end(text, end)].strip():
        return text  # it is named, as a button is
    return text[:begins] + text[end if len(signs) > 1 else _line_end(text, end) :]


def _stands_within(text: str, at: int) -> bool:
    return bool(text[text.rfind("\n", 0, at) + 1 : at].strip())
