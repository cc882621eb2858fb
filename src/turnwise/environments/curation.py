"""Which recorded episodes a model is fine-tuned on: few and good ones, of many kinds (OpenWebRL, 4.2). Pure functions.

An episode that did not solve its task, or in which an answer could not be read, is never kept.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from turnwise.environments.base import Task
from turnwise.environments.transcript import RolloutTranscript
from turnwise.errors import ConfigError

LEVELS = ("always", "mostly", "seldom")
"""How often the tries at a task solved it: each of them, half of them or more, fewer."""


@dataclass(frozen=True, slots=True)
class RecordedEpisode:
    """A try at a task: what was said, its reward (None: the machine failed), and what kind of task it was.

    ``unreadable``: answers of it in which no action was found.
    """

    transcript: RolloutTranscript
    reward: float | None
    task: str
    family: str
    unreadable: int = 0

    @property
    def size(self) -> tuple[int, int]:
        """Its answers, and the characters of them."""
        return self.transcript.answers, self.transcript.answered


@dataclass(frozen=True, slots=True)
class Curation:
    """The most that are kept of each task (the shortest ones), of each family, and of each level of difficulty; and
    the most answers of one. None: no limit."""

    per_task: int | None = None
    per_family: int | None = None
    per_level: int | None = None
    most_answers: int | None = None


_KEYS = {"task": "per_task", "family": "per_family", "level": "per_level", "answers": "most_answers"}


def read_curation(given: str | None) -> Curation:
    """Limits as `task=1,family=20`. Raises ConfigError."""
    found = Curation()
    for part in given.split(",") if given is not None else ():
        name, _, value = part.strip().partition("=")
        if name not in _KEYS or not value.isdecimal() or not int(value[:9]) >= 1:
            raise ConfigError(f"--keep takes {', '.join(f'{key}=N' for key in _KEYS)}, not {part.strip()[:40]!r}")
        found = replace(found, **{_KEYS[name]: int(value)})
    return found


def curated(episodes: Sequence[RecordedEpisode], by: Curation) -> list[RecordedEpisode]:
    """Those that are kept, in their order. A limit takes families and tasks in turn, so that none is left out for
    another's sake."""
    good = [
        e
        for e in episodes
        if e.reward == 1.0
        and e.transcript.answers
        and not e.unreadable
        and (by.most_answers is None or e.transcript.answers <= by.most_answers)
    ]
    levels, shortest = levels_of(episodes), sorted(good, key=lambda e: e.size)
    of_task, of_family, of_level = Counter[str](), Counter[str](), Counter[str]()
    kept: set[int] = set()
    for episode in _in_turn(shortest):
        level = levels[episode.task]
        if (
            _full(of_task[episode.task], by.per_task)
            or _full(of_family[episode.family], by.per_family)
            or _full(of_level[level], by.per_level)
        ):
            continue
        of_task[episode.task] += 1
        of_family[episode.family] += 1
        of_level[level] += 1
        kept.add(id(episode))
    return [episode for episode in episodes if id(episode) in kept]


def family_of(task: Task) -> str:
    """What tasks are of one kind: those of a page of MiniWoB++, of a host, or whose names differ in their numbers."""
    if isinstance(page := task.data.get("miniwob"), str):
        return page
    if isinstance(url := task.data.get("url"), str) and (host := urlsplit(url).netloc):
        return host
    parts = task.id.split("-")
    while len(parts) > 1 and parts[-1].isdecimal():
        parts.pop()
    return "-".join(parts)


def levels_of(episodes: Sequence[RecordedEpisode]) -> dict[str, str]:
    """How hard each task is, told from the tries at it."""
    rewards: dict[str, list[bool]] = defaultdict(list)
    for episode in episodes:
        if episode.reward is not None:
            rewards[episode.task].append(episode.reward == 1.0)
    return {task: _level(sum(solved) / len(solved)) for task, solved in rewards.items()}


def _level(share: float) -> str:
    return LEVELS[0] if share == 1 else LEVELS[1] if share >= 0.5 else LEVELS[2]


def _full(there: int, most: int | None) -> bool:
    return most is not None and there >= most


def _in_turn(episodes: Sequence[RecordedEpisode]) -> list[RecordedEpisode]:
    """First the shortest of every task, a task of each family after the other; then the second of every task, and so
    on."""
    tasks: dict[str, dict[str, int]] = defaultdict(dict)
    places: list[tuple[int, int, int]] = []
    nth = Counter[str]()
    for at, episode in enumerate(episodes):
        of_family = tasks[episode.family]
        of_family.setdefault(episode.task, len(of_family))
        places.append((nth[episode.task], of_family[episode.task], at))
        nth[episode.task] += 1
    return [episodes[at] for _, _, at in sorted(places)]
