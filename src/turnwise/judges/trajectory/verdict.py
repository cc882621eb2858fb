"""The strict reading of what a judge of trajectories said (OpenWebRL, A.4): NOT SUCCESS is looked for before SUCCESS.

Pure. A reply in which neither stands counts as NOT SUCCESS, as the paper has it; a judge that gave no reply at all is
another thing, and raises where it is asked.
"""

from __future__ import annotations

from turnwise.judges.parsing import without_quotes
from turnwise.patterns import pattern

YES, NO = "SUCCESS", "NOT SUCCESS"
THINKS, THOUGHT = "<think>", "</think>"
_NO = pattern(r"\b[Nn][Oo][Tt]?[^A-Za-z0-9]{1,8}(?:(?:a|an|the|any|A|AN|THE|ANY)[^A-Za-z0-9]{1,8})?SUCCESS\b")
_YES = pattern(r"\bSUCCESS\b")


def parse_verdict(reply: str) -> bool | None:
    """True for SUCCESS, False for NOT SUCCESS, None where neither stands there.

    The words count in capitals, as words of their own, outside of what the judge thought, to an end or not, and of what
    it quotes: code fences, quoted lines, and our fence around the material.
    """
    said = without_quotes(reply.rpartition(THOUGHT)[2].partition(THINKS)[0])
    if _NO.search(said):
        return False
    return True if _YES.search(said) else None


def score_of(verdict: bool | None) -> float:
    """J of A.4: 1 for SUCCESS, 0 for NOT SUCCESS and for a reply that cannot be read."""
    return float(verdict is True)


def as_words(verdict: bool) -> str:
    """The line that a judge ends with."""
    return f"Verdict: {YES if verdict else NO}"
