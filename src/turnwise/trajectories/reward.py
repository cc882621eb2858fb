"""What a trajectory of the web is worth, by rule (OpenWebRL, A.4): format, how it ended, and whether a judge is asked.

Pure. `by_rule` says what needs no judge, `final` puts the judge's word to it. What fails that is not the policy's doing
(the judge among it) has no reward at all: it raises where it happens, and the rollout is masked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

How = Literal["done", "page", "format", "steps", "context", "stopped"]
"""How an episode ended: by `done`, by the page's own script, by answers in a row without a call that can be read, by
the limit of steps, by a full context, or by an agent that just stopped."""
FORMAT_REWARD = -1.0


@dataclass(frozen=True, slots=True)
class EndedSo:
    """``well_formed``: each answer had a call that could be read, A.4's F. ``answer``: of `done`."""

    how: How
    well_formed: bool
    answer: str | None


def by_rule(end: EndedSo) -> float | None:
    """The reward that the rules alone give; None where a judge (or a task's verifier) has to say it.

    The order is A.4's: repeated format errors are -1, whatever else; an answer out of form makes it 0; one that did
    not end with `done`, or ended without an answer, is 0, and no judge is asked.
    """
    if end.how == "format":
        return FORMAT_REWARD
    if not end.well_formed:
        return 0.0
    if end.how != "done" or end.answer is None or not end.answer.strip():
        return 0.0
    return None


def final(end: EndedSo, judged: float | None) -> float:
    """R of A.4. ``judged``: the judge's J, 1 or 0; None where it was not asked, which is only right where `by_rule`
    decides. Raises ValueError otherwise."""
    ruled = by_rule(end)
    if ruled is not None:
        return ruled
    if judged is None:
        raise ValueError("this trajectory is the judge's to decide, and it was not asked")
    return float(judged)
