"""Which rollout is played next where tasks of several streams wait: each stream has its share, and its own limit."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from turnwise.environments.rollout import Play


def next_stream(waiting: Mapping[str, int], running: Mapping[str, int], limits: Mapping[str, int]) -> str | None:
    """The stream whose rollout begins next: of those that have some waiting and are below their limit, the one with the
    fewest running, and of equals the one that is named first. None: none may begin.

    So no stream waits for another: as long as places become free, one with nothing running has the next of them.
    """
    free = [
        name for name, left in waiting.items() if left and (name not in limits or running.get(name, 0) < limits[name])
    ]
    return min(free, key=lambda name: running.get(name, 0), default=None)


class Feed:
    """The rollouts of a run that wait, each stream's in its order."""

    def __init__(self, plays: Sequence[Play], limits: Mapping[str, int]) -> None:
        self._waiting: dict[str, deque[Play]] = {}
        for play in plays:
            self._waiting.setdefault(play.task.environment, deque()).append(play)
        self._running = dict.fromkeys(self._waiting, 0)
        self._limits = limits

    def next(self) -> Play | None:
        """The next rollout, which runs from now on; None while none may begin."""
        name = next_stream({name: len(left) for name, left in self._waiting.items()}, self._running, self._limits)
        if name is None:
            return None
        self._running[name] += 1
        return self._waiting[name].popleft()

    def ended(self, play: Play) -> None:
        self._running[play.task.environment] -= 1
