"""When a candidate is proven, and when it is retired: by the turns that it fitted, with it and without it.

Each turn is good or bad as it was judged. With uniform priors the two rates have Beta posteriors, and what counts is
the chance that the rate with the skill is the higher one. Pure functions; the limits were set by hand, and the chances
of a wrong decision stand in docs/skills.md.
"""

from __future__ import annotations

from math import exp, lgamma, log

from turnwise.journal.skills.records import SkillTrial
from turnwise.types import SkillState

LEAST_JUDGED = 8
"""Judged turns with the skill before anything is decided."""
LEAST_WITHOUT = 3
"""Judged turns without it before the two are compared."""
PROVEN_FROM = 0.95
RETIRED_BELOW = 0.2
RETIRED_ALONE_BELOW = 0.05
"""Where it was hardly ever left out there is next to nothing to compare with, and the limit is stricter."""
ENOUGH = 40
HELPS_FROM = 0.6
"""After so many judged turns a skill that is not likelier than this to help does not help."""


def chance_of_help(trial: SkillTrial) -> float:
    """The chance that turns go well more often with the skill than without it: P(p > q) of Beta(1 + good, 1 + bad)."""
    a, b = 1 + trial.good_without, 1 + trial.bad_without
    c, d = 1 + trial.good_with, 1 + trial.bad_with
    return min(1.0, sum(exp(_beta(a + i, b + d) - log(d + i) - _beta(1 + i, d) - _beta(a, b)) for i in range(c)))


def decide_on(state: SkillState, trial: SkillTrial) -> SkillState | None:
    """Where a skill goes by its figures; None where it stays. Candidates alone are on trial."""
    judged = trial.good_with + trial.bad_with
    if state is not SkillState.CANDIDATE or judged < LEAST_JUDGED:
        return None
    chance = chance_of_help(trial)
    compared = trial.good_without + trial.bad_without >= LEAST_WITHOUT
    if chance >= PROVEN_FROM:
        return SkillState.PROVEN
    if chance < (RETIRED_BELOW if compared else RETIRED_ALONE_BELOW):
        return SkillState.RETIRED
    return SkillState.RETIRED if compared and judged >= ENOUGH and chance < HELPS_FROM else None


def _beta(a: float, b: float) -> float:
    """The logarithm of the beta function."""
    return lgamma(a) + lgamma(b) - lgamma(a + b)
