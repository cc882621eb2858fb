"""Episodes as they were played, and which of them a person reads to know what a run was like."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from turnwise.environments.base import Task
from turnwise.environments.curation import family_of
from turnwise.messages import calls_of, from_chat, text_of

MOST_OF_A_MESSAGE = 1200
"""Characters of a message that are shown."""


@dataclass(frozen=True, slots=True)
class Episode:
    """One episode: its task, what came of it (None: the machine failed), and what was said, in OpenAI's shape."""

    task: Task
    reward: float | None
    steps: int
    messages: Sequence[dict[str, Any]]
    failure: str | None = None

    @property
    def family(self) -> str:
        return family_of(self.task)

    def said(self) -> int:
        """Characters of all that came after the task."""
        return sum(len(text_of(from_chat(message))) for message in self.messages[2:])


def shown(episodes: Sequence[Episode]) -> dict[str, Episode]:
    """Three episodes to read: the best (solved, in the fewest steps, and of those the one in which least was said), the
    worst (not solved, the lowest reward, the most steps), and a typical one (solved or not as most are, with the median
    of steps)."""
    played = [e for e in episodes if e.reward is not None and e.messages]
    if not played:
        return {}
    solved = [e for e in played if e.reward == 1.0]
    missed = [e for e in played if e.reward != 1.0]
    kind = sorted(solved if len(solved) >= len(missed) else missed, key=lambda e: e.steps)
    found = {"typical": kind[len(kind) // 2]}
    if solved:
        found["best"] = min(solved, key=lambda e: (e.steps, e.said()))
    if missed:
        found["worst"] = min(missed, key=lambda e: (e.reward or 0.0, -e.steps))
    return {name: found[name] for name in ("best", "worst", "typical") if name in found}


def as_json(episode: Episode) -> dict[str, Any]:
    """An episode as a line of a file."""
    said = {"task": episode.task.id, "family": episode.family, "reward": episode.reward, "steps": episode.steps}
    said |= {"failure": episode.failure}
    return said | {"messages": list(episode.messages)}


def to_read(episode: Episode) -> list[str]:
    """An episode as lines of Markdown. Longer fences hold what has fences in it."""
    lines: list[str] = []
    for message in map(from_chat, episode.messages):
        if message.role == "system":
            continue
        who = "answered" if message.role == "assistant" else "told"
        calls = [f"{call.name} {call.arguments}" for call in calls_of(message)]
        said = "\n".join([text_of(message)[:MOST_OF_A_MESSAGE], *(call[:MOST_OF_A_MESSAGE] for call in calls)])
        lines += ["", f"{who}:", "", "````", *said.replace("````", "'''").strip().splitlines(), "````"]
    return lines


def table(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    """A table in Markdown."""
    return [f"| {' | '.join(row)} |" for row in (headings, ["---"] * len(headings), *lines)]
