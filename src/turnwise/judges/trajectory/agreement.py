"""How good a judge of trajectories is: accuracy, precision, recall and F1 against labels, and how often two agree.

Pure functions of pairs of verdicts. A reply without a verdict counts as NOT SUCCESS, as it does where it is a reward.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from turnwise.trajectories.intervals import wilson


@dataclass(frozen=True, slots=True)
class Confusion:
    """Counts of what was said (first) of what was so (second): ``yes_no``: SUCCESS was said of a failure."""

    yes_yes: int
    yes_no: int
    no_yes: int
    no_no: int

    @property
    def cases(self) -> int:
        return self.yes_yes + self.yes_no + self.no_yes + self.no_no

    @property
    def accuracy(self) -> float | None:
        return _ratio(self.yes_yes + self.no_no, self.cases)

    @property
    def precision(self) -> float | None:
        """Of what was called a success, what was one; None where nothing was."""
        return _ratio(self.yes_yes, self.yes_yes + self.yes_no)

    @property
    def recall(self) -> float | None:
        """Of the successes, what was called one; None where there is none."""
        return _ratio(self.yes_yes, self.yes_yes + self.no_yes)

    @property
    def f1(self) -> float | None:
        """The harmonic mean of both; None where there is neither a success nor a word of one."""
        return _ratio(2 * self.yes_yes, 2 * self.yes_yes + self.yes_no + self.no_yes)

    @property
    def kappa(self) -> float | None:
        """Cohen's kappa: agreement beyond what chance gives two that say SUCCESS as often as these; None where one of
        both answers is all that either ever gives, so that chance alone explains it."""
        if not self.cases:
            return None
        said, so = self.yes_yes + self.yes_no, self.yes_yes + self.no_yes
        chance = (said * so + (self.cases - said) * (self.cases - so)) / self.cases**2
        observed = (self.yes_yes + self.no_no) / self.cases
        return None if math.isclose(chance, 1.0) else (observed - chance) / (1 - chance)

    def figures(self) -> dict[str, Any]:
        """All of it, for JSON."""
        rates = {name: getattr(self, name) for name in ("accuracy", "precision", "recall", "f1", "kappa")}
        low_high = wilson(self.yes_yes + self.no_no, self.cases)
        return {"cases": self.cases, **rates, "accuracy_ci95": low_high, "counts": asdict(self)}


def confusion(said: Sequence[bool | None], so: Sequence[bool]) -> Confusion:
    """Of verdicts, in the order of what was so. None counts as False."""
    pairs = [(one is True, other) for one, other in zip(said, so, strict=True)]
    return Confusion(*(pairs.count(pair) for pair in ((True, True), (True, False), (False, True), (False, False))))


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None
