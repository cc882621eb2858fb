"""The report of a run: `report.md`, `curve.png`, and `episodes.jsonl`, to which each rollout is added when it ends.

A run that goes on adds to its own. What was said is read from that file at the end, so that a long run does not keep it
in memory.
"""

from __future__ import annotations

import contextlib
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from turnwise.environments.base import Task
from turnwise.environments.reports.episodes import Episode, as_json, shown, table, to_read

if TYPE_CHECKING:
    from turnwise.environments.rollout import Ended

MOST_TASKS = 200
"""Tasks that have a line of the table."""
MOST_BYTES = 400_000
"""Of one episode that are kept; of a longer one the middle is left out."""
_COLORS = ("#1f5fa8", "#b06a1f", "#3a7d44", "#7a3a7d", "#303030", "#8a8a8a", "#a83232")


@dataclass(frozen=True, slots=True)
class Line:
    """What the figures need of an episode, and where its line begins in the file."""

    at: int
    stream: str
    task: str
    reward: float | None
    steps: int
    cut_off: bool
    has_words: bool


class RunReport:
    """Kept in ``folder``, which is made."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._name = folder, name
        self._file = folder / "episodes.jsonl"
        self._known = {str(told.get("session")) for _, told in self._lines()}
        if self._file.exists():
            with self._file.open("ab") as lines:
                lines.write(b"\n")  # behind a line that was cut off when its writer was killed

    def add(self, ended: Ended, messages: Sequence[dict[str, Any]]) -> None:
        """One that ended, unless the report has it already or it is to be gone on with."""
        if ended.open or ended.play.session in self._known or (ended.reward is None and ended.failure is None):
            return
        self._known.add(ended.play.session)
        episode = Episode(ended.play.task, ended.reward, ended.steps, _short(messages), ended.failure)
        told = {"session": ended.play.session, "stream": ended.play.task.environment, "cut_off": ended.cut_off}
        with self._file.open("ab") as lines:
            lines.write(json.dumps(told | as_json(episode)).encode() + b"\n")

    def write(self) -> Path:
        """Write the page and its curve; gives the page."""
        lines = [_line(at, told) for at, told in self._lines()]
        page = [f"# Run {self._name}", "", *_streams(lines), "", *_tasks(lines)]
        if any(line.reward is not None for line in lines):
            _draw(lines, self._name, self._folder / "curve.png")
            page += ["", "![Rewards and steps in the order in which rollouts ended](curve.png)"]
        for stream in dict.fromkeys(line.stream for line in lines):
            found = self._three([line for line in lines if line.stream == stream])
            for name, episode in found.items():
                page += ["", f"## The {name} of {stream}: {episode.task.id}, reward {episode.reward:g}"]
                page += to_read(episode)
        way = self._folder / "report.md"
        way.write_text("\n".join(page) + "\n", encoding="utf-8")
        return way

    def _three(self, lines: Sequence[Line]) -> dict[str, Episode]:
        """Only those are read whose figures say that they may be one of the three."""
        played = [line for line in lines if line.reward is not None and line.has_words]
        solved = sorted((each for each in played if each.reward == 1.0), key=lambda each: each.steps)
        missed = sorted((each for each in played if each.reward != 1.0), key=lambda each: (each.reward, -each.steps))
        usual = solved if len(solved) >= len(missed) else sorted(missed, key=lambda each: each.steps)
        chosen = {each.at for each in (*solved[:8], *missed[:1], *usual[len(usual) // 2 :][:1])}
        with contextlib.ExitStack() as held:
            file = held.enter_context(self._file.open("rb")) if chosen else None
            found: dict[int, Episode] = {}
            for at in sorted(chosen):
                assert file is not None
                file.seek(at)
                found[at] = _episode(json.loads(file.readline()))
        best_and_worst = shown(list(found.values()))
        if usual:
            best_and_worst["typical"] = found[usual[len(usual) // 2].at]
        return best_and_worst

    def _lines(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Each line's place and what it says, without one that was cut off in the middle."""
        at = 0
        with contextlib.ExitStack() as held:
            for line in held.enter_context(self._file.open("rb")) if self._file.exists() else ():
                with contextlib.suppress(ValueError, TypeError):
                    yield at, {**json.loads(line)}
                at += len(line)


def _line(at: int, told: dict[str, Any]) -> Line:
    of = (str(told["stream"]), str(told["task"]), told["reward"], int(told["steps"]))
    return Line(at, *of, told["cut_off"] is not None, bool(told["messages"]))


def _episode(told: dict[str, Any]) -> Episode:
    task = Task(str(told["task"]), str(told["stream"]), "")
    return Episode(task, told["reward"], int(told["steps"]), told["messages"], told["failure"])


def _short(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages without pictures, which would fill the disk, and of a very long conversation its two ends."""
    kept = [json.loads(json.dumps(message), object_hook=_without_picture) for message in messages]
    size = [len(json.dumps(message)) for message in kept]
    while sum(size) > MOST_BYTES and len(kept) > 4:
        middle = len(kept) // 2
        del kept[middle], size[middle]
    return kept


def _without_picture(part: dict[str, Any]) -> dict[str, Any]:
    return {"type": "text", "text": "(a picture)"} if part.get("type") == "image_url" else part


def _streams(lines: Sequence[Line]) -> list[str]:
    rows = []
    for stream in dict.fromkeys(line.stream for line in lines):
        mine = [line for line in lines if line.stream == stream]
        rewards = [line.reward for line in mine if line.reward is not None]
        mean = f"{sum(rewards) / len(rewards):.3f}" if rewards else "–"
        solved = f"{sum(reward == 1.0 for reward in rewards)} of {len(rewards)}"
        steps = f"{sum(line.steps for line in mine) / len(mine):.1f}"
        ended = (str(sum(line.cut_off for line in mine)), str(sum(line.reward is None for line in mine)))
        rows.append((stream, str(len({line.task for line in mine})), str(len(mine)), mean, solved, steps, *ended))
    headings = ("stream", "tasks", "rollouts", "mean reward", "reward 1", "steps", "cut off", "failed")
    return table(headings, rows)


def _tasks(lines: Sequence[Line]) -> list[str]:
    found: dict[str, list[float]] = defaultdict(list)
    for line in lines:
        if line.reward is not None:
            found[line.task].append(line.reward)
    rows = [(task, " ".join(f"{each:g}" for each in rewards)) for task, rewards in found.items()]
    more = [f"… and {len(rows) - MOST_TASKS} more tasks in episodes.jsonl."] if len(rows) > MOST_TASKS else []
    return ["## Rewards by task", "", *table(("task", "rewards"), rows[:MOST_TASKS]), *more]


def _draw(lines: Sequence[Line], name: str, file: Path) -> None:
    """The mean of the last rewards of each stream, and its steps, in the order in which rollouts ended."""
    figure = Figure(figsize=(9, 4.2), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    for number, stream in enumerate(dict.fromkeys(line.stream for line in lines)):
        mine = [line for line in lines if line.stream == stream and line.reward is not None]
        of = {"color": _COLORS[number % len(_COLORS)], "label": stream, "linewidth": 1.4}
        width = max(1, len(mine) // 10)
        places = range(1, len(mine) + 1)
        left.plot(places, _moving([line.reward or 0.0 for line in mine], width), **of)
        right.plot(places, _moving([float(line.steps) for line in mine], width), **of)
    for axes, title in ((left, "reward"), (right, "steps")):
        axes.set_title(f"{title}, mean of the last tenth", fontsize=10)
        axes.set_xlabel("rollouts that ended")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(axis="y", color="#e4e4e4", linewidth=0.8)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8)
    figure.suptitle(f"run {name}", fontsize=12, fontweight="bold")
    figure.savefig(file)


def _moving(values: Sequence[float], width: int) -> list[float]:
    """The mean of each value and those before it, ``width`` of them at most."""
    return [sum(values[max(0, at - width + 1) : at + 1]) / min(width, at + 1) for at in range(len(values))]
