"""Several runs of a stream's demo as one table and one plot: seeds of a recipe pooled, switches beside each other.

`python -m turnwise.demo.streams.together OUT OUT … --plot FILE.png`, with the folders of the runs.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from turnwise.demo.stats import bootstrap_ci95, mean
from turnwise.demo.streams.figures import RoundPlayed, change, from_json, share
from turnwise.demo.streams.recipe import AS_IT_IS, StreamRecipe
from turnwise.demo.streams.report import PARTS, bars, signed, titles
from turnwise.demo.streams.table import stream_recipe
from turnwise.environments.reports.episodes import Episode, table
from turnwise.errors import DataError

EXAMS = ("base", "sft", "rl", "control")
CHANGES = (("base", "sft"), ("sft", "rl"), ("control", "rl"))
COLORS = ("#1f5fa8", "#b06a1f", "#3f7d3f", "#8a3f8a", "#303030", "#8a8a8a")


@dataclass(frozen=True, slots=True)
class StreamRuns:
    """Runs that differ in their seeds alone. ``label``: what was switched; episodes by examination and part."""

    label: str
    seeds: Sequence[int]
    episodes: dict[tuple[str, str], list[Episode]]
    rounds: Sequence[Sequence[RoundPlayed]]


def read_runs(folders: Sequence[Path]) -> tuple[StreamRecipe, list[StreamRuns]]:
    """The runs in these folders, those of one recipe together. Raises DataError."""
    found: dict[str, StreamRuns] = {}
    streams: set[str] = set()
    for folder in folders:
        try:
            told = json.loads((folder / "report.json").read_text(encoding="utf-8"))
            lines = (folder / "episodes.jsonl").read_text(encoding="utf-8").split("\n")
            lines = [json.loads(line) for line in lines if line]
            seed, label = int(told["played_as"]["seed"]), _label(told["played_as"]["switches"])
            streams.add(told["played_as"]["stream"])
            rounds = [RoundPlayed(**each | {"ci95": tuple(each["ci95"])}) for each in told["rounds"]]
        except (OSError, ValueError, KeyError, TypeError) as e:
            raise DataError(f"{folder} has no run of a stream's demo: {e}") from e
        known = found.setdefault(label, StreamRuns(label, [], {}, []))
        if seed in known.seeds:
            raise DataError(f"{folder}: seed {seed} of the same recipe is there already")
        for line in lines:
            at = known.episodes.setdefault((line["exam"], line["part"]), [])
            one = from_json(line, stream_recipe(told["played_as"]["stream"]).stream)
            # Held-out tasks of two runs are other ones; what two runs share is told apart by its seed all the same.
            task = replace(one.task, id=f"{one.task.id}@{seed}")
            at.append(Episode(task, one.reward, one.steps, one.messages, one.failure))
        found[label] = StreamRuns(label, [*known.seeds, seed], known.episodes, [*known.rounds, rounds])
    if len(streams) != 1:
        raise DataError("give runs of one stream")
    return stream_recipe(streams.pop()), list(found.values())


def _label(switches: dict[str, object]) -> str:
    usual = {name: getattr(AS_IT_IS, name) for name in AS_IT_IS.__slots__} | {"steps": []}
    odd = {name: value for name, value in switches.items() if value != usual.get(name)}
    return ", ".join(f"{name} = {_plain(value)}" for name, value in odd.items()) or "as it is"


def _plain(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value).lower()


def as_table(recipe: StreamRecipe, runs: Sequence[StreamRuns]) -> str:
    """Shares and changes, pooled over the tasks of all seeds, with their intervals.

    What each recipe comes to beside the first one is paired over the tasks of the seeds that both were played with.
    """
    text: list[str] = []
    for each in runs:
        rows = [
            (name, *(str(share(each.episodes.get((name, part), [])) or "–") for part in PARTS))
            for name in EXAMS
            if any((name, part) in each.episodes for part in PARTS)
        ]
        rows += [
            (
                f"{one} → {two}",
                *(signed(change(each.episodes.get((one, p), []), each.episodes.get((two, p), []))) for p in PARTS),
            )
            for one, two in CHANGES
            if all(any((name, part) in each.episodes for part in PARTS) for name in (one, two))
        ]
        if each is not runs[0]:
            beside = [change(runs[0].episodes.get(("rl", p), []), each.episodes.get(("rl", p), [])) for p in PARTS]
            if any(beside):
                rows.append((f"rl {runs[0].label} → rl {each.label}", *map(signed, beside)))
        seeds = ", ".join(map(str, sorted(each.seeds)))
        text += [f"{each.label}; seeds {seeds}", "", *table(("examination", *titles(recipe)), rows), ""]
    return "\n".join(text)


def draw_runs(recipe: StreamRecipe, runs: Sequence[StreamRuns], file: Path) -> None:
    """The rounds of each recipe, averaged over its seeds, and the examinations beside them, as a PNG."""
    figure = Figure(figsize=(11, 4.4), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(1.3, 1.7))
    names = [name for name in EXAMS if any((name, "sampled") in each.episodes for each in runs)]
    ticks = [(name, part) for part in PARTS for name in names]
    for number, each in enumerate(runs):
        color = COLORS[number % len(COLORS)]
        longest = max((len(rounds) for rounds in each.rounds), default=0)
        played = [[rounds[i].solved for rounds in each.rounds if i < len(rounds)] for i in range(longest)]
        if played:
            ends = [(mean(solved), bootstrap_ci95(solved)) for solved in played]
            left.errorbar(
                range(1, longest + 1), [m for m, _ in ends], yerr=bars(ends), marker="o", capsize=3, color=color,
                label=each.label,
            )  # fmt: skip
        found = [(at, share(each.episodes.get(key, []))) for at, key in enumerate(ticks)]
        there = [(at + 0.1 * number, s) for at, s in found if s is not None]
        right.errorbar(
            [at for at, _ in there], [s.mean for _, s in there], yerr=bars([(s.mean, s.ci95) for _, s in there]),
            marker="s", capsize=3, linestyle="none", color=color, label=each.label,
        )  # fmt: skip
    left.set_xlabel("round (bars: over seeds)")
    left.set_ylabel("share of tries that solve their task")
    left.set_title("while it learned from its tries", fontsize=10)
    left.set_ylim(-0.02, 1.02)
    left.xaxis.set_major_locator(MaxNLocator(integer=True))
    right.set_xticks(range(len(ticks)), [name for name, _ in ticks], fontsize=8)
    for at, title in enumerate(titles(recipe)):
        right.text((at + 0.5) * len(names) - 0.5, 1.0, title, ha="center", va="top", fontsize=8, color="#606060")
    right.set_title("examinations (bars: 95 % over tasks of all seeds)", fontsize=10)
    for axes in (left, right):
        axes.grid(axis="y", color="#e4e4e4", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    left.legend(frameon=False, fontsize=8, loc="lower right")
    figure.savefig(file)


def main() -> None:
    """Print the table, and draw the plot where one is asked for."""
    parser = argparse.ArgumentParser(description="Several runs of a stream's demo as one table and one plot.")
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--plot", type=Path)
    asked = parser.parse_args()
    recipe, runs = read_runs(asked.folders)
    print(as_table(recipe, runs))
    if asked.plot is not None:
        draw_runs(recipe, runs, asked.plot)


if __name__ == "__main__":
    main()
