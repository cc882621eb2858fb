"""What the demo found, as data and as text: report.json, report.md and the table in the terminal.

A rise is never shown without the control arm and the answers' language beside it, and a failure is said as plainly
as a success.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from turnwise.demo.coherence import CRITERION_NATS
from turnwise.demo.heard import Heard

RISE_WANTED = 0.15
"""Rise of the held-out score that counts as having learned the person's preference."""

REPETITION_SLACK = 0.05
"""Largest rise of the repetition rate that can pass as chance, and only while its interval includes 0."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One evaluation on the held-out problems.

    ``mean`` score with its ``ci95`` over ``n`` problems; ``nll`` and ``nll_with_wish``: −log p per token under the base
    model, in nats; ``repetition``: share of repeated 4-grams; ``words`` per answer; ``distinct``: distinct words over
    words; ``on_topic`` and ``correct``: shares of answers that are about their problem, and whose last number is right.
    """

    mean: float
    ci95: tuple[float, float]
    n: int
    nll: float
    nll_with_wish: float
    repetition: float
    words: float
    distinct: float
    on_topic: float
    correct: float | None


@dataclass(frozen=True, slots=True)
class Change:
    """A mean difference over the same problems with its 95 % interval."""

    mean: float
    ci95: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Point:
    """A wave of conversations on the learning curve: the score of the first answers, as the person got them."""

    arm: str
    interactions: int
    mean: float
    ci95: tuple[float, float]
    n: int
    version: str


@dataclass(frozen=True, slots=True)
class Pair:
    """A held-out problem with its answer before and after."""

    question: str
    before: str
    after: str
    score_before: float
    score_after: float


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a demo. ``report.json`` is exactly this, with `language_kept` and `faults` added.

    ``repetition_change`` is against both examinations of the base model, before and with learning off.
    """

    persona: str
    method: str
    interactions: int
    seed: int
    base: Evaluation
    final: Evaluation
    control: Evaluation
    wish_reference: dict[str, float]
    rise: Change
    rise_over_control: Change
    repetition_change: Change
    failed_requests: int
    versions_published: int
    seconds: float
    failures: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    curve: list[Point] = field(default_factory=list)
    answers: list[Pair] = field(default_factory=list)
    heard: list[Heard] = field(default_factory=list)

    @property
    def language_loss(self) -> float:
        """Nats per token that the final answers lose against the base model's own answers to the wish."""
        return self.final.nll_with_wish - self.wish_reference["nll_with_wish"]

    @property
    def language_kept(self) -> bool:
        change = self.repetition_change
        return self.language_loss <= CRITERION_NATS and change.ci95[0] <= 0 and change.mean <= REPETITION_SLACK

    @property
    def faults(self) -> list[str]:
        """What kept the demo from being a valid run; empty when nothing did. A score that did not rise is a result."""
        faults = []
        if self.failed_requests:
            faults.append(
                f"{self.failed_requests} requests failed (first: {'; '.join(self.failures[:1]) or 'see log'})"
            )
        if not self.versions_published:
            faults.append("no policy version was published, so nothing was learned")
        return faults

    def verdict(self) -> list[str]:
        """The result in plain sentences."""
        rise, over = self.rise, self.rise_over_control
        if rise.mean >= RISE_WANTED:
            judged = "the agent learned the preference" if rise.ci95[0] > 0 else "a rise, but its interval includes 0"
        else:
            judged = f"less than the {RISE_WANTED:.2f} that would count as learned"
        lines = [
            f"Score on {self.final.n} held-out problems: {self.base.mean:.2f} → {self.final.mean:.2f}, "
            f"{_signed(rise)} after {self.interactions} interactions: {judged}.",
            f"Control arm (learning off): {self.base.mean:.2f} → {self.control.mean:.2f}; "
            f"rise over control {_signed(over)}.",
            f"Language {'kept' if self.language_kept else 'NOT kept'}: the final answers are "
            f"{abs(self.language_loss):.2f} nat per token {'less' if self.language_loss > 0 else 'more'} likely than "
            f"the base model's own answers to the wish (limit {CRITERION_NATS:.1f} less); repetition "
            f"{self.base.repetition:.2f} (learning off: {self.control.repetition:.2f}) → {self.final.repetition:.2f}, "
            f"{_signed(self.repetition_change)}.",
        ]
        return [*lines, *(f"Note: {note}." for note in self.notes), *(f"FAULT: {fault}." for fault in self.faults)]

    def to_json(self) -> str:
        return json.dumps({**asdict(self), "language_kept": self.language_kept, "faults": self.faults}, indent=1)


def write(report: Report, out: Path) -> None:
    """Write report.json and report.md into ``out``."""
    (out / "report.json").write_text(report.to_json() + "\n", encoding="utf-8")
    (out / "report.md").write_text(markdown(report), encoding="utf-8")


def markdown(report: Report) -> str:
    """The report as a page: verdict, figures, and the answers side by side."""
    rows = "\n".join(f"| {' | '.join(row)} |" for row in _rows(report))
    pairs = "\n".join(
        f"| {i} | {_cell(pair.question)} | {pair.score_before:g} | {_cell(pair.before)} | {pair.score_after:g} "
        f"| {_cell(pair.after)} |"
        for i, pair in enumerate(report.answers, start=1)
    )
    verdict = "\n".join(f"- {line}" for line in report.verdict())
    return (
        f"# Demo: {report.persona}, {report.method}, {report.interactions} interactions, seed {report.seed}\n\n"
        f"{verdict}\n\n![learning curve](curve.png)\n\n"
        f"| {' | '.join(_COLUMNS)} |\n|{' --- |' * len(_COLUMNS)}\n{rows}\n\n"
        f"{report.versions_published} versions published, {report.failed_requests} failed requests, "
        f"{report.seconds:.0f} s.\n\n## Before and after\n\nThe first held-out problems, not chosen by result.\n\n"
        f"| | problem | score | before | score | after |\n| --- | --- | --- | --- | --- | --- |\n{pairs}\n"
        f"{_heard(report)}"
    )


def _heard(report: Report) -> str:
    """What the person said in the first conversations, and what became of it."""
    if not report.heard:
        return ""
    rows = "\n".join(
        f"| {_cell(h.said)} | {_score(h.score)} | {_cell(h.hint or '–')} | {_cell(h.became())} |" for h in report.heard
    )
    return (
        "\n## What the person said, and what became of it\n\nOf the first conversations: the judge's score of the "
        "answer before, the wish it took from the words, and the version that learned from them, or why none did. This "
        "was read when the conversations were over.\n\n"
        f"| the person | score | wish | what became of it |\n| --- | --- | --- | --- |\n{rows}\n"
    )


def _score(score: int | None) -> str:
    return "–" if score is None else f"{score:+d}" if score else "0"


def print_table(report: Report, console: Console) -> None:
    """The figures and the verdict, in the terminal."""
    table = Table(title=f"{report.persona} · {report.method} · {report.interactions} interactions · seed {report.seed}")
    for i, column in enumerate(_COLUMNS):
        table.add_column(column, justify="left" if i == 0 else "right")
    for row in _rows(report):
        table.add_row(*row)
    console.print(table)
    for line in report.verdict():
        console.print(line, highlight=False)


_COLUMNS = (
    "arm",
    "score",
    "95 %",
    "n",
    "−log p",
    "with wish",
    "repetition",
    "distinct",
    "words",
    "on topic",
    "correct",
)


def _rows(report: Report) -> list[tuple[str, ...]]:
    arms = {"base": report.base, "final": report.final, "control": report.control}
    rows = [
        (
            name,
            f"{arm.mean:.2f}",
            f"{arm.ci95[0]:.2f}–{arm.ci95[1]:.2f}",
            str(arm.n),
            f"{arm.nll:.2f}",
            f"{arm.nll_with_wish:.2f}",
            f"{arm.repetition:.2f}",
            f"{arm.distinct:.2f}",
            f"{arm.words:.0f}",
            f"{arm.on_topic:.0%}",
            "–" if arm.correct is None else f"{arm.correct:.0%}",
        )
        for name, arm in arms.items()
    ]
    told = report.wish_reference
    return [
        *rows,
        ("base, told the wish", f"{told['mean']:.2f}", "", "", "", f"{told['nll_with_wish']:.2f}", *[""] * 5),
    ]


def _signed(change: Change) -> str:
    return f"{change.mean:+.2f} [{change.ci95[0]:+.2f}, {change.ci95[1]:+.2f}]"


def _cell(text: str) -> str:
    """Text for a table cell of Markdown: shown as it is, markup included."""
    escaped = text.strip().replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
    for mark in "*_#`$[]":
        escaped = escaped.replace(mark, f"\\{mark}")
    return "<br>".join(escaped.splitlines())
