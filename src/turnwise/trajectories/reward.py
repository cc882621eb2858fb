"""What a trajectory of the web is worth, by rule (OpenWebRL, A.4): format, how it ended, and whether a judge is asked.

Pure. `by_rule` says what needs no judge. Where it is the judge's to say, its word is the reward
(`cli/environments/outcomes.py`), but of an episode that a full context ended, which is 0 (`environments/rollout.py`).
What fails that is not the policy's doing (the judge among it) has no reward at all: it raises where it happens, and the
rollout is masked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

How = Literal["done", "page", "format", "steps", "stopped"]
"""How an episode ended: by `done`, by the page's own script, by answers in a row without a call that can be read, by
the limit of steps, or because nobody went on (an agent that just stopped, or one whose context is full)."""
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
