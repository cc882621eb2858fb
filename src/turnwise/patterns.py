"""The one place where regular expressions are made; nothing else in the package imports `re` (ruff holds it).

Patterns spot things: `*` and `+` in them mean at most `MOST` times, which keeps a search linear however often the
beginning of a match comes in a hostile text. What must read to the end says `unbounded`.

Every pattern is made when its module is imported and is remembered with the place it was made, so that one test can
hold all of them to linear time on hostile text. A pattern is never made from text that comes from outside.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from re import Match, Pattern
from typing import Any, AnyStr, Generic

__all__ = [
    "DOTALL",
    "IGNORECASE",
    "MADE",
    "MULTILINE",
    "Anchored",
    "Made",
    "Match",
    "Pattern",
    "anchored",
    "any_of",
    "between",
    "bounded",
    "has_word",
    "pattern",
]

MOST = 300
"""How often `*` and `+` repeat, unless a pattern is unbounded."""
DOTALL = re.DOTALL
IGNORECASE = re.IGNORECASE
MULTILINE = re.MULTILINE


class Anchored(Generic[AnyStr]):
    """A pattern that is only tried at one position, never searched for.

    Searching tries a pattern at each position, which makes many a linear pattern quadratic.
    """

    __slots__ = ("_compiled", "pattern")

    def __init__(self, compiled: Pattern[AnyStr]) -> None:
        self._compiled = compiled
        self.pattern = compiled.pattern

    def match(self, text: AnyStr, pos: int = 0) -> Match[AnyStr] | None:
        return self._compiled.match(text, pos)

    def fullmatch(self, text: AnyStr, *span: int) -> Match[AnyStr] | None:
        return self._compiled.fullmatch(text, *span)


@dataclass(frozen=True, slots=True)
class Made:
    """A pattern of the package: where it was made (module and line), and whether it is only tried at one position."""

    where: str
    compiled: Pattern[Any]
    anchored: bool


MADE: list[Made] = []
"""Every pattern that the modules imported so far have made."""


def pattern(source: AnyStr, flags: int = 0, *, unbounded: bool = False) -> Pattern[AnyStr]:
    """A compiled pattern, registered. Raises RuntimeError when it is called by anything but a module's own code."""
    return _made(source if unbounded else bounded(source), flags, anchored=False)


def anchored(source: AnyStr, flags: int = 0, *, unbounded: bool = False) -> Anchored[AnyStr]:
    """The same for a pattern that is only matched at a given position, or against a whole text."""
    return Anchored(_made(source if unbounded else bounded(source), flags, anchored=True))


def any_of(*sources: str) -> Pattern[str]:
    """One pattern that matches where any of these does, in upper or lower case."""
    return _made(bounded("|".join(sources)), IGNORECASE, anchored=False)


def bounded(source: AnyStr) -> AnyStr:
    """The pattern with `{0,MOST}` for each `*` and `{1,MOST}` for each `+` that repeats something."""
    if isinstance(source, bytes):
        return _bounded(source.decode("latin-1")).encode("latin-1")
    return _bounded(source)


def _bounded(source: Any) -> Any:
    done: list[str] = []
    at, opened = 0, -1  # where the set of characters begins that we are in
    while at < len(source):
        sign = source[at]
        if sign == "\\":
            sign = source[at : at + 2]
        elif opened >= 0:
            first = at == opened + 1 or (at == opened + 2 and source[at - 1] == "^")
            opened = -1 if sign == "]" and not first else opened
        elif sign == "[":
            opened = at
        elif sign in "*+" and not (done and done[-1].endswith("}") and source[at - 1] in "*+?}"):
            done.append(f"{{{int(sign == '+')},{MOST}}}")
            at += 1
            continue
        done.append(sign)
        at += len(sign)
    return "".join(done)


def between(text: str, opens: str, closes: str) -> Iterator[tuple[int, int]]:
    """Where the parts of a text that begin with `opens` and end with the next `closes` start and end."""
    start = text.find(opens)
    while start >= 0:
        end = text.find(closes, start + len(opens))
        if end < 0:
            return
        yield start, end + len(closes)
        start = text.find(opens, end + len(closes))


def has_word(text: str, word: str, joining: str = "") -> bool:
    """Whether `word` stands in the text with no letter, digit, underscore or one of `joining` beside it."""

    def apart(at: int) -> bool:
        return not 0 <= at < len(text) or not (text[at].isalnum() or text[at] in "_" + joining)

    return any(apart(at - 1) and apart(at + len(word)) for at in _places(text, word)) if word else False


def _places(text: str, word: str) -> Iterator[int]:
    at = text.find(word)
    while at >= 0:
        yield at
        at = text.find(word, at + 1)


def _made(source: AnyStr, flags: int, anchored: bool) -> Pattern[AnyStr]:
    frame = sys._getframe(2)
    code = frame.f_code
    while code.co_name.startswith("<") and code.co_name != "<module>" and frame.f_back:  # a comprehension
        frame = frame.f_back
        code = frame.f_code
    if code.co_name != "<module>":
        raise RuntimeError(f"make the pattern {source!r} when the module is imported, outside of {code.co_name}()")
    compiled = re.compile(source, flags)
    MADE.append(Made(f"{frame.f_globals.get('__name__')}:{frame.f_lineno}", compiled, anchored))
    return compiled
