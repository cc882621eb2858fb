"""Scores beside each other: what they are measured from, and what a version remembers of them.

Live verdicts are skewed: of a stranger's, three quarters are −1. Taken as they are, most of a step would then push down
whatever was said, which is how answers turn into no language. Pure functions of rewards; the formula is that of
docs/training.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

EPSILON = 1e-6
"""Beside a deviation that rewards are divided by."""
PRIOR = 8.0
"""Verdicts of 0 that the baseline always has in it: it begins at 0, and never reaches −1 or +1."""
WINDOW = 64.0
"""Verdicts of earlier batches that it remembers: a few batches, as the person or the agent changes."""


@dataclass(frozen=True, slots=True)
class ScoreHistory:
    """The scores that a version and its parents were trained on: their weighted sum, and the sum of their weights.

    The weight of a verdict is its confidence, and a reward is a score times its weight.
    """

    total: float = 0.0
    weight: float = 0.0

    @classmethod
    def of(cls, metrics: Mapping[str, float]) -> ScoreHistory:
        """What a version's metrics say; nothing, for the base model and for versions from before there was any."""
        return cls(metrics.get("score_sum", 0.0), metrics.get("score_weight", 0.0))

    def metrics(self) -> dict[str, float]:
        """What `of` reads."""
        return {"score_sum": self.total, "score_weight": self.weight}

    def after(self, rewards: Sequence[float]) -> ScoreHistory:
        """The history with a batch more in it, shrunk to the window."""
        total, weight = self.total + sum(rewards), self.weight + sum(map(abs, rewards))
        shrink = min(1.0, WINDOW / weight) if weight else 1.0
        return ScoreHistory(total * shrink, weight * shrink)


def centred(rewards: Sequence[float], history: ScoreHistory) -> list[float]:
    """What each reward says beside the others: ``c · (s − b)`` with score s, confidence c and baseline b.

    ``b`` is the mean score of the history, of PRIOR verdicts of 0, and of the *other* rewards: were the reward itself
    in it, it would take away from what it says. |b| < 1, so praise stays praise and blame blame, and with a share of
    p of the verdicts being −1 both sides come to weigh the same: (1 − p) · 2p and p · 2(1 − p). A reward of 0 stays 0.
    """
    total, weight = history.total + sum(rewards), history.weight + PRIOR + sum(map(abs, rewards))
    return [
        abs(r) * (math.copysign(1.0, r) - (total - r) / (weight - abs(r))) if r else 0.0
        for r in rewards
    ]  # fmt: skip


def standardised(rewards: Sequence[float], group: Sequence[float], *, population: bool) -> list[float]:
    """``(R − mean) / (deviation + EPSILON)`` of each of ``rewards``, with mean and deviation of all in ``group``.

    ``population``: the deviation divides by the group's size n, else by n − 1. A group of one has no other to be
    measured from and keeps its raw reward; where all of a group are equal each is exactly 0.
    """
    if len(group) < 2:
        return list(rewards)
    if min(group) == max(group):
        return [0.0] * len(rewards)
    mean = math.fsum(group) / len(group)
    squares = math.fsum((r - mean) ** 2 for r in group)
    deviation = math.sqrt(squares / (len(group) if population else len(group) - 1))
    return [(r - mean) / (deviation + EPSILON) for r in rewards]
