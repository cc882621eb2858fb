"""Patterns that must be caught by the check of linear time, and one that must not; nothing else uses them."""

from turnwise.patterns import DOTALL, pattern

pattern(r"(?:[\s,]*\b(?:please|thanks)\b|[\s.!?,])+$", unbounded=True)
pattern(r"(?:a|aa)+$", unbounded=True)
pattern(r"(?m)^\s*x", unbounded=True)
pattern(r"<think>.*?</think>", DOTALL, unbounded=True)
pattern(r"\b(?:fine|good) \w+")
