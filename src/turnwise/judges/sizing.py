"""How much of long material fits into a judge's prompt: a bound on tokens, a fair share of the room, head and tail.

Pure functions. The judge may be any endpoint with any tokenizer, so tokens are bounded from above by what byte-level
tokenizers do, not counted.
"""

from __future__ import annotations

from collections.abc import Sequence

from turnwise.patterns import pattern

LETTER_TOKENS = 0.35
"""Tokens of an ASCII letter or space; words of prose take 0.2 to 0.3 a letter, names in code up to 0.35."""

NOTE_TOKENS = 26
"""The most that the note on what was left out takes."""

_LETTERS = pattern(r"[A-Za-z ]+")


def token_bound(text: str) -> int:
    """About the most tokens a text takes: digits and signs one each, letters a third, other scripts one a byte."""
    letters = sum(len(run) for run in _LETTERS.findall(text))
    return round(LETTER_TOKENS * letters + len(text.encode("utf-8", "replace")) - letters)


def shares(needs: Sequence[int], room: int) -> list[int]:
    """The room divided among parts: none gets more than it needs, what small ones leave goes to the large ones."""
    given = [0] * len(needs)
    left = max(0, room)
    order = sorted(range(len(needs)), key=lambda i: needs[i])
    for done, i in enumerate(order):
        given[i] = min(needs[i], left // (len(needs) - done))
        left -= given[i]
    return given


def shorten(text: str, tokens: int) -> str:
    """The text if it takes at most ``tokens``, else its head and its tail with a note on what is missing between."""
    if token_bound(text) <= tokens:
        return text
    half = max(0, tokens - NOTE_TOKENS) // 2
    head, tail = _longest(text, half), _longest(text[::-1], half)[::-1]
    return f"{head}\n{note(len(text) - len(head) - len(tail))}\n{tail}"


def note(characters: int) -> str:
    """What stands in the place of a part that was left out."""
    return f"(… {characters} characters left out …)"


def _longest(text: str, tokens: int) -> str:
    """The longest beginning that takes at most ``tokens``."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if token_bound(text[:middle]) <= tokens else (low, middle - 1)
    return text[:low]
