"""Writes what the demo of the terminal found: report.md, report.json, curve.png, and every episode."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from turnwise.demo.terminal.figures import RoundPlayed, Share, TerminalExam, by_family, change, share
from turnwise.demo.terminal.recipe import MOST_STEPS, TEMPERATURE
from turnwise.environments.reports.episodes import as_json, shown, table, to_read

TITLES = {
    "sampled": f"new tasks, temperature {TEMPERATURE:g}",
    "greedy": "new tasks, temperature 0",
    "unseen": f"new families, temperature {TEMPERATURE:g}",
}
_COLORS = ("#303030", "#b06a1f", "#1f5fa8", "#8a8a8a")


@dataclass(slots=True)
class TerminalReport:
    """What was measured so far. ``solutions`` are conversations of the warm start."""

    model: str
    seed: int
    exams: list[TerminalExam] = field(default_factory=list)
    rounds: list[RoundPlayed] = field(default_factory=list)
    solutions: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def exam(self, name: str) -> TerminalExam | None:
        return next((exam for exam in self.exams if exam.name == name), None)

    @property
    def failures(self) -> list[str]:
        """Why episodes of examinations have no outcome."""
        return [
            e.failure or "" for exam in self.exams for part in exam.parts.values() for e in part if e.reward is None
        ]

    def changes(self) -> dict[str, dict[str, Share | None]]:
        """The changes that the demo is about, of each part of the examination."""
        pairs = [("base", "sft"), ("sft", "rl"), ("control", "rl"), ("sft", "control")]
        found: dict[str, dict[str, Share | None]] = {}
        for one, two in pairs:
            before, after = self.exam(one), self.exam(two)
            if before is not None and after is not None:
                found[f"{one} → {two}"] = {part: change(before.parts[part], after.parts[part]) for part in TITLES}
        return found


def write(report: TerminalReport, out: Path) -> None:
    """Write all files; what is not measured yet is not in them."""
    (out / "report.json").write_text(json.dumps(as_data(report), indent=2), encoding="utf-8")
    (out / "report.md").write_text(as_markdown(report), encoding="utf-8")
    with (out / "episodes.jsonl").open("w", encoding="utf-8") as lines:
        for exam in report.exams:
            for part, episodes in exam.parts.items():
                for episode in episodes:
                    line = {"exam": exam.name, "part": part} | as_json(episode)
                    lines.write(json.dumps(line, ensure_ascii=False) + "\n")
    if report.exams:
        draw(report, out / "curve.png")


def as_data(report: TerminalReport) -> dict[str, Any]:
    """The figures, for programs."""
    exams = {
        exam.name: {"version": exam.version}
        | {part: _data(share(episodes)) for part, episodes in exam.parts.items()}
        | {"families": by_family(exam.sampled) | by_family(exam.unseen)}
        for exam in report.exams
    }
    changes = {pair: {part: _data(by) for part, by in parts.items()} for pair, parts in report.changes().items()}
    told = {"model": report.model, "seed": report.seed, "exams": exams, "changes": changes}
    told |= {"rounds": [asdict(each) for each in report.rounds], "solutions": report.solutions}
    return told | {"seconds": report.seconds, "notes": report.notes, "failures": report.failures}


def _data(found: Share | None) -> dict[str, Any] | None:
    return asdict(found) if found is not None else None


def rows(report: TerminalReport) -> list[tuple[str, ...]]:
    """The table of examinations, a line each."""
    return [
        (exam.name, exam.version, *(str(share(episodes) or "–") for episodes in exam.parts.values()))
        for exam in report.exams
    ]


HEADINGS = ("examination", "version", *TITLES.values())


def as_markdown(report: TerminalReport) -> str:
    """The report that a person reads."""
    tasks = {part: share(episodes) for exam in report.exams[:1] for part, episodes in exam.parts.items()}
    numbers = ", ".join(f"{TITLES[part]}: {found.n} tasks" for part, found in tasks.items() if found)
    text = [
        f"# Terminal: {report.model}, seed {report.seed}",
        "",
        (
            f"Share of tasks solved, with 95 % bootstrap intervals over tasks ({numbers}). At most "
            f"{MOST_STEPS} answers a task."
        ),
        "",
        *table(HEADINGS, rows(report)),
        "",
        f"`base` is the model as it is; `sft` after a fine-tuning on {report.solutions} solutions; `rl` after GRPO on "
        "its own tries; `control` is the version of `sft` once more, at the end and with other seeds of sampling: what "
        "differs between these two is chance.",
        "",
        "## Changes, paired by task",
        "",
        *table(("change", *TITLES.values()), _changes(report)),
        "",
        "## Rounds of GRPO",
        "",
        *table(
            ("round", "solved", "groups that differ", "version after it", "seconds"),
            [
                (str(r.number), f"{r.solved:.2f} ({r.ci95[0]:.2f} to {r.ci95[1]:.2f})", f"{r.mixed} of {r.groups}",
                 str(r.version), f"{r.seconds:.0f}")
                for r in report.rounds
            ],
        ),
        "",
        "## By family",
        "",
        *_families(report),
        "",
        "## Time",
        "",
        *table(("stage", "seconds"), [(name, f"{seconds:.0f}") for name, seconds in report.seconds.items()]),
    ]  # fmt: skip
    text += ["", *(f"- {note}" for note in report.notes)] if report.notes else []
    if (last := report.exam("rl") or report.exam("sft") or report.exam("base")) is not None:
        for name, episode in shown([*last.sampled, *last.unseen]).items():
            text += [
                "",
                f"## The {name} of `{last.name}`: {episode.task.id}, reward {episode.reward:g}",
                *to_read(episode),
            ]
    return "\n".join(text) + "\n"


def _changes(report: TerminalReport) -> list[tuple[str, ...]]:
    return [(name, *(_signed(parts[part]) for part in TITLES)) for name, parts in report.changes().items()]


def _signed(found: Share | None) -> str:
    return "–" if found is None else f"{found.mean:+.2f} ({found.ci95[0]:+.2f} to {found.ci95[1]:+.2f})"


def _families(report: TerminalReport) -> list[str]:
    found = {exam.name: by_family(exam.sampled) | by_family(exam.unseen) for exam in report.exams}
    names = list(dict.fromkeys(family for exam in found.values() for family in exam))
    lines = [(n, *(f"{exam[n]:.2f}" if n in exam else "–" for exam in found.values())) for n in names]
    return table(("family", *found), lines)


def draw(report: TerminalReport, file: Path) -> None:
    """The rounds, and the examinations beside them, as a PNG."""
    figure = Figure(figsize=(9, 4.4), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(1.6, 1.4))
    if report.rounds:
        xs, means = [r.number for r in report.rounds], [r.solved for r in report.rounds]
        left.errorbar(
            xs, means, yerr=_bars([(r.solved, r.ci95) for r in report.rounds]), marker="o", capsize=3, color=_COLORS[2]
        )
    left.set_xlabel("round")
    left.set_ylabel("share of tries that solve their task")
    left.set_title("while it learned from its tries", fontsize=10)
    left.xaxis.set_major_locator(MaxNLocator(integer=True))
    left.set_ylim(-0.02, 1.02)
    for number, exam in enumerate(report.exams):
        found = [share(episodes) for episodes in exam.parts.values()]
        places = [(x + 0.16 * number - 0.24, s) for x, s in enumerate(found) if s is not None]
        right.errorbar(
            [x for x, _ in places], [s.mean for _, s in places], yerr=_bars([(s.mean, s.ci95) for _, s in places]),
            marker="s", capsize=3, linestyle="none", color=_COLORS[number % 4], label=exam.name,
        )  # fmt: skip
    right.set_xticks(range(3), [title.replace(", ", ",\n") for title in TITLES.values()], fontsize=8)
    right.set_title("examinations", fontsize=10)
    right.legend(frameon=False, fontsize=8)
    for axes in (left, right):
        axes.grid(axis="y", color="#e4e4e4", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"terminal, {report.model}, seed {report.seed}", fontsize=12, fontweight="bold")
    figure.supxlabel("bars are 95 % bootstrap intervals over tasks", fontsize=8, color="#606060")
    figure.savefig(file)


def _bars(values: Sequence[tuple[float, tuple[float, float]]]) -> list[list[float]]:
    """Distances from the means down and up to the interval's ends."""
    return [[max(0.0, m - low) for m, (low, _) in values], [max(0.0, high - m) for m, (_, high) in values]]
