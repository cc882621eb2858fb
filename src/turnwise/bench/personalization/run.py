"""The bench of learning from few words: persons × seeds × ways of learning; tables, curves and the raw points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Drawing

from turnwise.bench.personalization.language import language_losses
from turnwise.bench.personalization.people import people_of
from turnwise.bench.personalization.persons import DEVELOPMENT, Person
from turnwise.bench.personalization.play import ARMS, WAVE, Course, Examined, answers_of, play
from turnwise.bench.personalization.unseen import UNSEEN
from turnwise.bench.report import BenchReport, Figure, Grid
from turnwise.demo.coherence import CoherenceError
from turnwise.demo.server import termination_unwinds
from turnwise.demo.stats import bootstrap_ci95, mean
from turnwise.errors import ConfigError

FOLLOWED_WHEN_TOLD = 0.9
"""A wish that the model follows in this share of answers when it is told is one that it can learn."""
AIMS = {24: 0.6, 48: 0.8}
"""Conversations, and the share of answers that then meet such a wish unasked."""


@dataclass(frozen=True, slots=True)
class PersonalizationOptions:
    """What to play. ``persons`` are names, "unseen", "development" or a TOML file of people (`people.py`); ``updates``
    are waves of conversations, and ``every`` how many of them lie between two examinations."""

    model: str
    out: Path
    persons: str = "unseen"
    arms: str = ",".join(ARMS)
    seeds: int = 5
    updates: int = 16
    every: int = 1


def bench_personalization(options: PersonalizationOptions, say: Callable[[str], None]) -> BenchReport:
    """Play every course that has not been played in the folder yet; gives the report over all of them.

    Raises ConfigError for names that there are not and for a course that cannot go on, TurnwiseError when a server
    does not start.
    """
    persons, arms = _persons(options.persons), options.arms.split(",")
    if unknown := set(arms) - ARMS.keys():
        raise ConfigError(f"no way of learning {', '.join(sorted(unknown))}; there are {', '.join(ARMS)}")
    options.out.mkdir(parents=True, exist_ok=True)
    courses = [
        Course(p, s, a, options.updates, options.model, options.every)
        for s in range(options.seeds)
        for a in arms
        for p in persons
    ]
    played: dict[Course, list[Examined]] = {}
    with termination_unwinds():
        for n, course in enumerate(courses, start=1):
            say(f"{n} of {len(courses)}: {course.name}")
            played[course] = play(course, options.out, say)
    _draw(played, arms, options.out / "curves.png")
    grids = [_grid(played, arms)]
    try:
        grids += _language(played, arms, options.out)
    except CoherenceError as e:  # the courses took hours or days: what they came to is said all the same
        say(f"the language of the answers was not looked at: {e}")
    return BenchReport("turnwise bench personalization", _figures(played, arms), _notes(options), grids)


def _persons(chosen: str) -> Sequence[Person]:
    groups = {"unseen": UNSEEN, "development": DEVELOPMENT}
    if chosen in groups:
        return groups[chosen]
    if chosen.endswith(".toml"):
        return people_of(Path(chosen))
    known = {p.name: p for p in (*DEVELOPMENT, *UNSEEN)}
    if unknown := set(chosen.split(",")) - known.keys():
        raise ConfigError(f"nobody is called {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    return [known[name] for name in chosen.split(",")]


def share_met(point: Examined, told: dict[str, float], least: float = FOLLOWED_WHEN_TOLD) -> float | None:
    """Mean share of answers that meet the wishes which the model follows when told; None where there is no such."""
    shares = [share for wish, share in point.met.items() if told.get(wish, 0.0) >= least]
    return mean(shares) if shares else None


def _told(points: Sequence[Examined]) -> dict[str, float]:
    return {wish: share for point in points for wish, share in point.told.items()}


def _figures(played: dict[Course, list[Examined]], arms: Sequence[str]) -> list[Figure]:
    figures = []
    for arm in arms:
        for conversations, aim in AIMS.items():
            found = [
                share
                for course, points in played.items()
                if course.arm == arm
                for point in points
                if point.conversations == conversations and (share := share_met(point, _told(points))) is not None
            ]
            if found:
                low, high = bootstrap_ci95(found)
                what = f"{arm}: wishes met unasked after {conversations} conversations"
                value = f"{mean(found):.2f} [{low:.2f}, {high:.2f}], {len(found)} runs"
                figures.append(Figure(what, value, f"aim {aim}", f"{mean(found) / aim:.2f}"))
    return figures


def _grid(played: dict[Course, list[Examined]], arms: Sequence[str]) -> Grid:
    shown = _spread(sorted({p.conversations for points in played.values() for p in points}), 9)
    rows = []
    for arm in arms:
        for person in dict.fromkeys(course.person.name for course in played):
            runs = [points for course, points in played.items() if course.arm == arm and course.person.name == person]
            told = [mean(list(_told(points).values())) for points in runs if _told(points)]
            row = [person, arm, f"{mean(told):.2f}" if told else "–"]
            for conversations in shown:
                at = [p for points in runs for p in points if p.conversations == conversations]
                met = [mean(list(p.met.values())) for p in at]
                row.append(f"{mean(met):.2f} · {mean([p.right for p in at]):.2f}" if at else "–")
            rows.append(row)
    return Grid(
        "Share of answers that meet the wishes · that are right", ["person", "learning", "told", *map(str, shown)], rows
    )


def _language(played: dict[Course, list[Examined]], arms: Sequence[str], folder: Path) -> list[Grid]:
    """What the answers lost of their language, and the gate's general probe; nothing where no answers were kept."""
    files = {course: answers_of(folder / f"{course.name}.jsonl") for course in played}
    losses = {c: language_losses(file, c.person, c.model) for c, file in files.items() if file.exists()}
    shown = _spread(sorted({at for found in losses.values() for at in found}), 9)
    rows = []
    for arm in arms:
        for person in dict.fromkeys(course.person.name for course in losses):
            of = [course for course in losses if course.arm == arm and course.person.name == person]
            cells = []
            for at in shown:
                lost = [losses[course][at] for course in of if at in losses[course]]
                rises = [p.general_rise for c in of for p in played[c] if p.conversations == at]
                known = [rise for rise in rises if rise is not None]
                cells.append(f"{mean(lost):.2f} · {f'{mean(known):.2f}' if known else '–'}" if lost else "–")
            rows.append([person, arm, *cells])
    title = "Language lost, in nats per token, of the answers · of the gate's general probe"
    return [Grid(title, ["person", "learning", *map(str, shown)], rows)] if losses else []


def _spread(numbers: Sequence[int], most: int) -> list[int]:
    """About so many of the numbers, the first, the last and those with an aim among them."""
    if len(numbers) <= most:
        return list(numbers)
    spread = {numbers[round(i * (len(numbers) - 1) / (most - 1))] for i in range(most)}
    return sorted(spread | (AIMS.keys() & set(numbers)))


def _notes(options: PersonalizationOptions) -> list[str]:
    missed = [str(aim) for aim in AIMS if aim % (WAVE * options.every) and aim < WAVE * options.updates]
    return [f"Nobody was examined after {' and '.join(missed)} conversations, which have an aim."] * bool(missed) + [
        f"Model {options.model}, {options.seeds} seeds, shipped defaults. After each {WAVE * options.every} "
        "conversations 24 held-out questions are asked without the wish. 'Told': the base model with the wish under "
        "the question.",
        f"The figures are over wishes that the model follows in at least {FOLLOWED_WHEN_TOLD:.0%} of answers when "
        "told; intervals are 95 % bootstrap intervals over runs. The table has all persons.",
        "Language: what answers are less likely to the base model than its own ones, without the wish or with it, "
        "whichever is less; and what the gate found of its general probe.",
    ]


def _draw(played: dict[Course, list[Examined]], arms: Sequence[str], file: Path) -> None:
    """The curves with bands over runs; no window and no global state of matplotlib."""
    drawing = Drawing(figsize=(8, 4.6), dpi=150, layout="constrained")
    FigureCanvasAgg(drawing)
    axes = drawing.subplots()
    for arm in arms:
        runs = [points for course, points in played.items() if course.arm == arm]
        at = sorted({p.conversations for points in runs for p in points})
        met = [[mean(list(p.met.values())) for points in runs for p in points if p.conversations == c] for c in at]
        bands = [bootstrap_ci95(values) for values in met]
        (line,) = axes.plot(at, [mean(values) for values in met], marker="o", markersize=3, label=arm)
        axes.fill_between(at, [b[0] for b in bands], [b[1] for b in bands], alpha=0.15, color=line.get_color())
    axes.set_ylim(-0.02, 1.02)
    axes.set_xlabel("conversations")
    axes.set_ylabel("share of answers that meet the wishes, unasked")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    drawing.savefig(file)
