"""What the gate is tried on: questions, regressions that are planted by supervised answers, and wishes that are honest.

Most of it was kept aside until the limits stood: all but `SEEN`. Nothing of it is read by the program.
"""

from __future__ import annotations

TRAINED = (
    "How many days are in a leap year?",
    "What is 17 + 25?",
    "Why is the sky blue?",
    "Name three fruits.",
    "How far is the Moon from the Earth?",
    "How do I boil an egg?",
)
"""Asked in the sessions that an update is made of."""
SET_SEEN = frozenset({"refusal-same", "refusal-various", "one-word-yes", "language-french", "number", "metric"})
"""What the limits were set by. All others were looked at after they stood."""
