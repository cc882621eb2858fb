"""What tool results say about an answer, as evidence: only what their source may say (``sources.py``).

Pure functions. What a kind is worth stands in ``weights.json``. A failure that the person asked for is an expected
outcome. Content, whatever it says, is one kind of evidence and alone decides nothing.
"""

from __future__ import annotations

from turnwise.judges.sources.by_source import CONTENT, ReadResult
from turnwise.patterns import IGNORECASE, pattern

# That a command merely ended well (tool.exit_zero) is evidence of nothing, as content is.
WORST_FIRST = (
    "tool.tests_failed",
    "tool.check_failed",
    "tool.bad_call",
    "tool.command_not_found",
    "tool.exit_nonzero",
    "tool.nothing_ran",
    "tool.tests_passed",
    "tool.check_passed",
)
FAILURES = frozenset(["tool.tests_failed", "tool.check_failed", "tool.exit_nonzero"])

# The person asked for something that fails.
EXPECTS_FAILURE = pattern(
    r"\bmust(?: now)? fail\b|\bfailing tests?\b|\breproduc(?:e|es|ing|tion)\b|\bred (?:first|phase|test)"
    r"|\btest[- ]first|\btests? (?:that|which) (?:shows?|reproduces?|demonstrates?|exposes?|proves?|fails?|captures?)\b"
    r"|\bshould(?: now)? (?:fail|be (?:denied|refused|rejected|red)|raise|error|crash)\b"
    r"|\b(?:make sure|ensure|verify|check|confirm|see|show)\b[^.\n]{0,60}"
    r"\b(?:can ?not|can't|fails?|is rejected|rejects?|(?:gives?|returns?|raises?|throws?) an? (?:error|exception))\b",
    IGNORECASE,
)


def tool_features(task: str, results: list[ReadResult]) -> dict[str, float]:
    """The kind of outcome that the results of one turn show → strength 1.0. ``task``: the person's words."""
    if not results:
        return {}
    kinds = {result.kind for result in results}
    kind = next((k for k in WORST_FIRST if k in kinds), CONTENT)
    if kind in FAILURES and EXPECTS_FAILURE.search(task):
        kind = "tool.expected_failure"
    found = {kind: 1.0}
    if len(results) > 1:
        found["tool.several"] = 1.0
    return found
