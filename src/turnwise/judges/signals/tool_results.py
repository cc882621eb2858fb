"""What tool results say about an answer: only what their source may say (``sources``), as the chance of each score.

Pure functions. A failure that the person asked for is an expected outcome. Content, whatever it says, says nothing.
"""

from __future__ import annotations

from turnwise.judges.sources.by_source import ReadResult
from turnwise.patterns import IGNORECASE, pattern

CHANCES: dict[str, tuple[float, float, float]] = {
    "tool.tests_failed": (0.94, 0.03, 0.03),
    "tool.check_failed": (0.90, 0.06, 0.04),
    "tool.bad_call": (0.90, 0.06, 0.04),
    "tool.command_not_found": (0.89, 0.07, 0.04),
    "tool.exit_nonzero": (0.79, 0.14, 0.07),
    "tool.nothing_ran": (0.06, 0.91, 0.03),
    "tool.tests_passed": (0.04, 0.05, 0.91),
    "tool.check_passed": (0.05, 0.07, 0.88),
    "tool.expected_failure": (0.03, 0.05, 0.92),
}
"""Kind of outcome → how likely it means (bad, neutral, good), the worst first: weights once fitted
to 285 labelled outputs, rounded.

That a command merely ended well (tool.exit_zero) is evidence of nothing, as content is.
"""
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


def tool_evidence(task: str, results: list[ReadResult]) -> str | None:
    """The kind of outcome that the results of one turn show, or None. ``task``: the person's words."""
    kinds = {result.kind for result in results}
    kind = next((kind for kind in CHANCES if kind in kinds), None)
    return "tool.expected_failure" if kind in FAILURES and EXPECTS_FAILURE.search(task) else kind
