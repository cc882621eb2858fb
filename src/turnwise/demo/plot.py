"""Draws the learning curve: the score of each wave's first answers, and of the held-out problems before and after."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from turnwise.demo.report import Evaluation, Point, Report

_LEARNING, _CONTROL, _BASE = "#1f5fa8", "#8a8a8a", "#303030"


def draw(report: Report, file: Path) -> None:
    """Write the curve of ``report`` as a PNG. No window and no global state of matplotlib is used."""
    figure = Figure(figsize=(8, 4.6), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    waves, held_out = figure.subplots(1, 2, sharey=True, width_ratios=(3, 1.25))
    last = max((point.interactions for point in report.curve), default=1)
    for arm, color, label, shift in (
        ("control", _CONTROL, "learning off", 0.0),
        ("learning", _LEARNING, "learning on", 0.012 * last),  # beside each other, not on top
    ):
        _wave_line(waves, [p for p in report.curve if p.arm == arm], color, label, shift)
    waves.set_xlim(0, 1.06 * last)
    waves.xaxis.set_major_locator(MaxNLocator(integer=True))
    waves.set_ylim(-0.02, 1.02)
    waves.set_xlabel("conversations, at the end of each wave")
    waves.set_ylabel("preference score (0 to 1)")
    waves.set_title("first answers while it was used", fontsize=10)
    waves.legend(loc="upper left", frameon=False, fontsize=9)
    bars = (
        ("before", report.base, _BASE),
        ("after", report.final, _LEARNING),
        ("after,\noff", report.control, _CONTROL),
    )
    for x, (_, arm, color) in enumerate(bars):
        _held_out_point(held_out, x, arm, color)
    held_out.set_xticks(range(len(bars)), [name for name, _, _ in bars])
    held_out.set_xlim(-0.6, len(bars) - 0.3)
    held_out.set_title(f"{report.final.n} held-out problems", fontsize=10)
    for axes in (waves, held_out):
        axes.grid(axis="y", color="#e4e4e4", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(
        f"{report.persona}, {report.method}, seed {report.seed}: {report.base.mean:.2f} → {report.final.mean:.2f}",
        fontsize=12,
        fontweight="bold",
    )
    figure.supxlabel("bars are 95 % bootstrap intervals over problems", fontsize=8, color="#606060")
    figure.savefig(file)


def _wave_line(axes: Axes, points: list[Point], color: str, label: str, shift: float) -> None:
    if not points:
        return
    xs, means = [p.interactions + shift for p in points], [p.mean for p in points]
    axes.errorbar(xs, means, yerr=_bars(points), color=color, marker="o", markersize=5, capsize=3, label=label)


def _held_out_point(axes: Axes, x: int, arm: Evaluation, color: str) -> None:
    axes.errorbar(
        [x], [arm.mean], yerr=_bars([arm]), color=color, marker="s", markersize=7, capsize=4, linestyle="none"
    )
    axes.annotate(f"{arm.mean:.2f}", (x, arm.mean), xytext=(8, 4), textcoords="offset points", color=color, fontsize=9)


def _bars(values: list[Point] | list[Evaluation]) -> list[list[float]]:
    """Distances from the means down and up to the interval's ends."""
    low = [max(0.0, v.mean - v.ci95[0]) for v in values]
    high = [max(0.0, v.ci95[1] - v.mean) for v in values]
    return [low, high]
