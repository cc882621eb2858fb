"""Figures of the steps of rollouts: which are samples of their own, which go on from the one before, what was seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy import func, select

from turnwise.journal import schema
from turnwise.journal.schema.pictures import turn_pictures
from turnwise.journal.store import Store

AT_ONCE = 200
"""Sessions that are asked for in one statement."""
T, P = schema.turns.c, turn_pictures.c
Size = tuple[int, int]


@dataclass(slots=True)
class StepFigures:
    """``merged``: steps whose prompt is, id for id, the prompt and the answer of the step before and something behind
    it, so that both are trained in one row; ``own``: those with a prompt of their own, as the first of each rollout.

    ``shown``: how many pictures stood in their prompts, by the size they have and the size that the model's processor
    scaled them to, each (width, height).
    """

    own: int = 0
    merged: int = 0
    shown: Counter[tuple[Size, Size]] = field(default_factory=Counter)

    @property
    def pictures(self) -> int:
        return self.shown.total()


def step_figures(store: Store, sessions: Sequence[str]) -> StepFigures:
    """Of the answered steps of these rollouts."""
    found = StepFigures()
    with store.reading() as c:
        for start in range(0, len(sessions), AT_ONCE):
            steps = T.session_id.in_(sessions[start : start + AT_ONCE]), T.step.is_not(None), T.response_tokens > 0
            for bridged, count in c.execute(select(T.bridged, func.count()).where(*steps).group_by(T.bridged)):
                found.merged += count if bridged else 0
                found.own += 0 if bridged else count
            sizes = (P.width, P.height, P.shown_width, P.shown_height)
            joined = select(*sizes, func.count()).join(schema.turns, T.id == P.turn_id)
            for width, height, shown_width, shown_height, count in c.execute(joined.where(*steps).group_by(*sizes)):
                found.shown[(width, height), (shown_width, shown_height)] += count
    return found
