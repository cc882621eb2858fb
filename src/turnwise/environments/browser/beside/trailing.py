"""Keeps what a judge is to look at while an episode of the web is played: calls, what came of them, the last pages."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence

from turnwise.environments.base import Action, Call
from turnwise.trajectories.trail import LAST_PAGES, ShownPage, Trail, TrailStep

MOST_OF_A_CALL = 1000
"""Characters."""


class TrailKeeper:
    """Of one episode. ``task`` is what was asked for, also by the page; ``reference`` what is known of the answer."""

    def __init__(self, task: str, reference: str | None = None) -> None:
        self._task, self._reference = task, reference
        self._steps: list[TrailStep] = []
        self._pages: deque[ShownPage] = deque(maxlen=LAST_PAGES)

    def saw(self, page: ShownPage) -> None:
        self._pages.append(page)

    def did(self, action: Action, feedback: Sequence[str]) -> None:
        self._steps.append(TrailStep(action.text, tuple(map(call_said, action.calls)), tuple(feedback)))

    def trail(self, answer: str | None) -> Trail:
        """All of it so far; ``answer`` is that of `done`."""
        return Trail(self._task, tuple(self._steps), tuple(self._pages), answer, self._reference)


def call_said(call: Call) -> str:
    """A call as a person would write it down."""
    given = ", ".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in call.arguments.items())
    return f"{call.name[:40]}({given})"[:MOST_OF_A_CALL]
