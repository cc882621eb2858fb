"""What the demo of a stream measured, as figures with their intervals. Pure functions of episodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from turnwise.demo.stats import bootstrap_ci95, mean
from turnwise.environments.base import Task
from turnwise.environments.reports.episodes import Episode


@dataclass(frozen=True, slots=True)
class Share:
    """A share of tasks solved, averaged over tasks, with its 95 % bootstrap interval over them; ``n`` are tasks."""

    mean: float
    ci95: tuple[float, float]
    n: int

    def __str__(self) -> str:
        return f"{self.mean:.2f} ({self.ci95[0]:.2f} to {self.ci95[1]:.2f})"


@dataclass(slots=True)
class StreamExam:
    """An examination of one version: ``sampled`` tries at tasks of known families, ``greedy`` ones at temperature 0,
    and ``unseen``, those at tasks of families that nothing was learned from."""

    name: str
    version: str
    sampled: list[Episode] = field(default_factory=list)
    greedy: list[Episode] = field(default_factory=list)
    unseen: list[Episode] = field(default_factory=list)

    @property
    def parts(self) -> dict[str, list[Episode]]:
        return {"sampled": self.sampled, "greedy": self.greedy, "unseen": self.unseen}


@dataclass(frozen=True, slots=True)
class RoundPlayed:
    """A round of tries: the tasks solved, how many groups were neither all solved nor all failed, and the version
    that answers after it. ``play_s`` of its ``seconds`` it was played; ``steps``: answers of an episode, on average;
    ``solved_by``: the share of each family."""

    number: int
    solved: float
    ci95: tuple[float, float]
    mixed: int
    groups: int
    version: int
    play_s: float
    seconds: float
    steps: float = 0.0
    solved_by: dict[str, float] = field(default_factory=dict)


def by_task(episodes: Sequence[Episode]) -> dict[str, list[float]]:
    """The rewards of each task, without failures of the machine; where one is below 0, its format was the fault."""
    found: dict[str, list[float]] = defaultdict(list)
    for episode in episodes:
        if episode.reward is not None:
            found[episode.task.id].append(episode.reward)
    return dict(found)


def share(episodes: Sequence[Episode]) -> Share | None:
    """None where nothing was scored."""
    means = [_solved(rewards) for rewards in by_task(episodes).values()]
    return Share(mean(means), bootstrap_ci95(means), len(means)) if means else None


def _solved(rewards: Sequence[float]) -> float:
    return mean([max(0.0, reward) for reward in rewards])


def change(before: Sequence[Episode], after: Sequence[Episode]) -> Share | None:
    """The mean change over the tasks of both, paired task by task."""
    earlier, later = by_task(before), by_task(after)
    both = [_solved(later[task]) - _solved(earlier[task]) for task in later if task in earlier]
    return Share(mean(both), bootstrap_ci95(both), len(both)) if both else None


def by_family(episodes: Sequence[Episode]) -> dict[str, float]:
    """The share solved of each family."""
    found: dict[str, list[float]] = defaultdict(list)
    for episode in episodes:
        if episode.reward is not None:
            found[episode.family].append(episode.reward)
    return {family: _solved(rewards) for family, rewards in found.items()}


def round_played(
    number: int, episodes: Sequence[Episode], version: int, play_s: float, seconds: float
) -> RoundPlayed | None:
    """None where nothing was scored."""
    solved, groups = share(episodes), by_task(episodes)
    if solved is None:
        return None
    mixed = sum(len(set(rewards)) > 1 for rewards in groups.values())
    steps = mean([float(e.steps) for e in episodes if e.reward is not None])
    times = (round(play_s, 1), round(seconds, 1))
    return RoundPlayed(
        number, solved.mean, solved.ci95, mixed, len(groups), version, *times, round(steps, 2), by_family(episodes)
    )


def from_json(line: dict[str, Any], environment: str) -> Episode:
    """An episode as it was written; of its task the name alone is known."""
    data = {"miniwob": line["family"]} if environment == "web" else {}
    return Episode(
        Task(line["task"], environment, "", data), line["reward"], line["steps"], line["messages"], line["failure"]
    )
