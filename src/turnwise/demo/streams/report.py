"""Writes what the demo of a stream found, and reads it again: report.md, report.json, curve.png, and every episode."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from turnwise.demo.streams.figures import (
    RoundPlayed,
    Share,
    StreamExam,
    by_family,
    change,
    from_json,
    share,
)
from turnwise.demo.streams.recipe import AS_IT_IS, StreamRecipe, StreamScale, Switches
from turnwise.environments.reports.episodes import as_json, shown, table, to_read
from turnwise.errors import ConfigError
from turnwise.files import write_atomically

PARTS = ("sampled", "greedy", "unseen")
LAST_EXAM = "control"
READABLE = 0o644
_COLORS = ("#303030", "#b06a1f", "#1f5fa8", "#8a8a8a")


@dataclass(slots=True)
class StreamReport:
    """What was measured so far. ``solutions`` are conversations of the warm start, ``warm`` the version after it,
    ``played`` the rounds that were played."""

    recipe: StreamRecipe
    model: str
    seed: int
    scale: StreamScale
    switches: Switches = AS_IT_IS
    warm: str = "base"
    played: int = 0
    exams: list[StreamExam] = field(default_factory=list)
    rounds: list[RoundPlayed] = field(default_factory=list)
    solutions: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def exam(self, name: str) -> StreamExam | None:
        return next((exam for exam in self.exams if exam.name == name), None)

    @property
    def failures(self) -> list[str]:
        """Why episodes of examinations have no outcome."""
        return [
            e.failure or "" for exam in self.exams for part in exam.parts.values() for e in part if e.reward is None
        ]

    def take_up(self, out: Path) -> None:
        """Go on with the run whose files are in ``out``. Raises ConfigError where it was another one, or none."""
        try:
            told = json.loads((out / "report.json").read_text(encoding="utf-8"))
            lines = (out / "episodes.jsonl").read_text(encoding="utf-8").split("\n")
            self._take(told, [json.loads(line) for line in lines if line], out)
        except OSError as e:
            raise ConfigError(f"there is no run to go on with in {out} ({e}); leave out --go-on") from None
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as e:
            text = f"the run in {out} cannot be read ({type(e).__name__}: {str(e)[:80]}); give --out another folder"
            raise ConfigError(text) from None

    def _take(self, told: dict[str, Any], episodes: list[dict[str, Any]], out: Path) -> None:
        if told["played_as"] != _played_as(self):
            raise ConfigError(f"the run in {out} has other flags, model, seed or sizes; give --out another folder")
        self.exams = [StreamExam(name, each["version"]) for name, each in told["exams"].items()]
        self.rounds = [RoundPlayed(**each | {"ci95": tuple(each["ci95"])}) for each in told["rounds"]]
        self.warm, self.played, self.solutions = told["warm"], told["played"], told["solutions"]
        self.seconds, self.notes = told["seconds"], told["notes"]
        for line in episodes:
            exam = self.exam(line["exam"])
            if exam is not None:
                exam.parts[line["part"]].append(from_json(line, self.recipe.stream))

    def changes(self) -> dict[str, dict[str, Share | None]]:
        """The changes that the demo is about, of each part of the examination."""
        pairs = [("base", "sft"), ("sft", "rl"), ("control", "rl"), ("sft", "control")]
        found: dict[str, dict[str, Share | None]] = {}
        for one, two in pairs:
            before, after = self.exam(one), self.exam(two)
            if before is not None and after is not None:
                found[f"{one} → {two}"] = {part: change(before.parts[part], after.parts[part]) for part in PARTS}
        return found


def was_stopped(out: Path) -> bool:
    """Whether a run of a stream in ``out`` has results, and not yet its last ones, or none that can be read."""
    try:
        told = json.loads((out / "report.json").read_text(encoding="utf-8"))
        exams = told["exams"] if isinstance(told, dict) and "played_as" in told else {}  # else of another demo
        return bool(exams) and LAST_EXAM not in exams
    except FileNotFoundError:
        return False
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return True


def write(report: StreamReport, out: Path) -> None:
    """Write all files; what is not measured yet is not in them. A process that is killed meanwhile leaves what a run
    can go on with: the report that counts its episodes comes behind them."""
    lines = [
        {"exam": exam.name, "part": part} | as_json(episode)
        for exam in report.exams
        for part, episodes in exam.parts.items()
        for episode in episodes
    ]
    told = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    write_atomically(out / "episodes.jsonl", told.encode(), READABLE)
    write_atomically(out / "report.json", json.dumps(as_data(report), indent=2).encode(), READABLE)
    write_atomically(out / "report.md", as_markdown(report).encode(), READABLE)
    if report.exams:
        draw(report, out / "curve.png")


def as_data(report: StreamReport) -> dict[str, Any]:
    """The figures, for programs."""
    exams = {
        exam.name: {"version": exam.version}
        | {part: _data(share(episodes)) for part, episodes in exam.parts.items()}
        | {"families": by_family(exam.sampled) | by_family(exam.unseen)}
        for exam in report.exams
    }
    changes = {pair: {part: _data(by) for part, by in parts.items()} for pair, parts in report.changes().items()}
    told = {"played_as": _played_as(report), "exams": exams, "changes": changes}
    told |= {
        "warm": report.warm,
        "played": report.played,
        "rounds": [asdict(each) for each in report.rounds],
        "solutions": report.solutions,
    }
    return told | {"seconds": report.seconds, "notes": report.notes, "failures": report.failures}


def _played_as(report: StreamReport) -> dict[str, Any]:
    """What a run must have in common with one that goes on with it."""
    switches = asdict(report.switches) | {"steps": list(report.switches.steps)}
    told = {"stream": report.recipe.name, "model": report.model, "seed": report.seed}
    return told | {"scale": asdict(report.scale), "switches": switches}


def _data(found: Share | None) -> dict[str, Any] | None:
    return asdict(found) if found is not None else None


def rows(report: StreamReport) -> list[tuple[str, ...]]:
    """The table of examinations, a line each."""
    return [
        (exam.name, exam.version, *(str(share(episodes) or "–") for episodes in exam.parts.values()))
        for exam in report.exams
    ]


def titles(recipe: StreamRecipe) -> list[str]:
    """What the parts of an examination are called, in the order of PARTS."""
    warmth = f"temperature {recipe.temperature:g}"
    return [f"new tasks, {warmth}", "new tasks, temperature 0", f"new {recipe.families}, {warmth}"]


def headings(recipe: StreamRecipe) -> tuple[str, ...]:
    """Of the table of examinations."""
    return ("examination", "version", *titles(recipe))


def as_markdown(report: StreamReport) -> str:
    """The report that a person reads."""
    recipe, columns = report.recipe, titles(report.recipe)
    tasks = [share(episodes) for exam in report.exams[:1] for episodes in exam.parts.values()]
    numbers = ", ".join(f"{title}: {found.n} tasks" for title, found in zip(columns, tasks, strict=False) if found)
    text = [
        f"# {recipe.title}: {report.model}, seed {report.seed}",
        "",
        (
            f"Share of tasks solved, with 95 % bootstrap intervals over tasks ({numbers}). At most "
            f"{max(report.switches.steps or (recipe.most_steps,))} answers a task."
        ),
        "",
        *table(headings(recipe), rows(report)),
        "",
        f"`base` is the model as it is; `sft` after a fine-tuning on {report.solutions} solutions; `rl` after GRPO on "
        "its own tries; `control` is the version of `sft` once more, at the end and with other seeds of sampling: what "
        "differs between these two is chance.",
        "",
        "## Changes, paired by task",
        "",
        *table(("change", *columns), _changes(report)),
        "",
        "## Rounds of GRPO",
        "",
        *table(
            ("round", "solved", "groups that differ", "answers", "version after it", "seconds", "of them played"),
            [
                (str(r.number), f"{r.solved:.2f} ({r.ci95[0]:.2f} to {r.ci95[1]:.2f})", f"{r.mixed} of {r.groups}",
                 f"{r.steps:.2f}", str(r.version), f"{r.seconds:.0f}", f"{r.play_s:.0f}")
                for r in report.rounds
            ],
        ),
        "",
        f"## By {recipe.family}",
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


def _changes(report: StreamReport) -> list[tuple[str, ...]]:
    return [(name, *(signed(parts[part]) for part in PARTS)) for name, parts in report.changes().items()]


def signed(found: Share | None) -> str:
    """A change with its interval."""
    return "–" if found is None else f"{found.mean:+.2f} ({found.ci95[0]:+.2f} to {found.ci95[1]:+.2f})"


def _families(report: StreamReport) -> list[str]:
    found = {exam.name: by_family(exam.sampled) | by_family(exam.unseen) for exam in report.exams}
    names = list(dict.fromkeys(family for exam in found.values() for family in exam))
    lines = [(n, *(f"{exam[n]:.2f}" if n in exam else "–" for exam in found.values())) for n in names]
    return table((report.recipe.family, *found), lines)


def draw(report: StreamReport, file: Path) -> None:
    """The rounds, and the examinations beside them, as a PNG."""
    figure = Figure(figsize=(9, 4.4), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(1.6, 1.4))
    if report.rounds:
        xs, means = [r.number for r in report.rounds], [r.solved for r in report.rounds]
        left.errorbar(
            xs, means, yerr=bars([(r.solved, r.ci95) for r in report.rounds]), marker="o", capsize=3, color=_COLORS[2]
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
            [x for x, _ in places], [s.mean for _, s in places], yerr=bars([(s.mean, s.ci95) for _, s in places]),
            marker="s", capsize=3, linestyle="none", color=_COLORS[number % 4], label=exam.name,
        )  # fmt: skip
    right.set_xticks(range(3), [title.replace(", ", ",\n") for title in titles(report.recipe)], fontsize=8)
    right.set_title("examinations", fontsize=10)
    right.legend(frameon=False, fontsize=8)
    for axes in (left, right):
        axes.grid(axis="y", color="#e4e4e4", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"{report.recipe.name}, {report.model}, seed {report.seed}", fontsize=12, fontweight="bold")
    figure.supxlabel("bars are 95 % bootstrap intervals over tasks", fontsize=8, color="#606060")
    figure.savefig(file)


def bars(values: Sequence[tuple[float, tuple[float, float]]]) -> list[list[float]]:
    """Distances from the means down and up to the interval's ends."""
    return [[max(0.0, m - low) for m, (low, _) in values], [max(0.0, high - m) for m, (_, high) in values]]
