"""How much memory each process of the program has, sampled over the soak; whether it grows; and its plot.

A process that was just started fills its caches. What counts is the stretch at the end in which nothing is killed:
after a warm-up, the last third of it beside the first.
"""

from __future__ import annotations

import contextlib
import statistics
import threading
from dataclasses import dataclass
from pathlib import Path

import psutil
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from turnwise.bench.soak.ledger import Ledger
from turnwise.bench.soak.program import Program

EVERY_S = 2.0
WARM_UP_S = 120.0
SHORTEST_S = 300.0
"""A stretch shorter than this says nothing."""
GROWTH = 1.10
SLACK_MB = 20.0
"""Flat: the last third's median is at most GROWTH times the first third's, and SLACK_MB."""
_COLORS = {
    "supervisor": "#8a8a8a",
    "engine": "#1f5fa8",
    "gateway": "#b0401f",
    "judge": "#3f8f4f",
    "trainer": "#7a4fa0",
}
_SHADES = {"kill": "#f3c9c2", "hang": "#f3e3b8", "disk": "#cfe2f3", "clock": "#dcd3ea"}


@dataclass(frozen=True, slots=True)
class MemorySample:
    """One loop at one time. ``mb`` is the proportional share of its process and its children where the system tells it,
    else what is resident.
    """

    at_s: float
    loop: str
    pid: int
    mb: float


@dataclass(frozen=True, slots=True)
class Growth:
    """One process over the stretch in which nothing was killed."""

    loop: str
    seconds: float
    first_mb: float
    last_mb: float
    mb_per_hour: float
    judged: bool

    @property
    def flat(self) -> bool:
        return self.last_mb <= self.first_mb * GROWTH + SLACK_MB


class Memory:
    """Samples in a thread of its own until ``stop``."""

    def __init__(self, program: Program, ledger: Ledger) -> None:
        self._program, self._ledger = program, ledger
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory", daemon=True)
        self.samples: list[MemorySample] = []

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(10)

    def _run(self) -> None:
        while not self._stop.wait(EVERY_S):
            for name, process in self._program.processes().items():
                with contextlib.suppress(psutil.Error):
                    size = _size_mb(process)
                    if name != "supervisor":  # its children are the loops themselves
                        size += sum(map(_size_mb, process.children(recursive=True)))
                    self.samples.append(MemorySample(self._ledger.now(), name, process.pid, size))


def _size_mb(process: psutil.Process) -> float:
    sizes = process.memory_full_info()
    return (getattr(sizes, "pss", 0) or sizes.rss) / 1e6


def growth_since(samples: list[MemorySample], calm_s: float) -> list[Growth]:
    """What each process did after ``calm_s``: one line for the process of a loop that lived the longest since."""
    lives: dict[tuple[str, int], list[MemorySample]] = {}
    for sample in samples:
        if sample.at_s >= calm_s:
            lives.setdefault((sample.loop, sample.pid), []).append(sample)
    longest: dict[str, list[MemorySample]] = {}
    for (loop, _), life in lives.items():
        if len(life) > len(longest.get(loop, [])):
            longest[loop] = life
    return [_growth(loop, life) for loop, life in sorted(longest.items())]


def _growth(loop: str, life: list[MemorySample]) -> Growth:
    seconds = life[-1].at_s - life[0].at_s
    judged = seconds >= WARM_UP_S + SHORTEST_S
    warm = [sample for sample in life if sample.at_s >= life[0].at_s + WARM_UP_S] if judged else life
    third = max(1, len(warm) // 3)
    slope = 0.0
    if len(warm) > 2:
        slope = statistics.linear_regression([s.at_s for s in warm], [s.mb for s in warm]).slope * 3600
    first = statistics.median(sample.mb for sample in warm[:third])
    last = statistics.median(sample.mb for sample in warm[-third:])
    return Growth(loop, seconds, first, last, slope, judged)


def draw(samples: list[MemorySample], ledger: Ledger, calm_s: float, file: Path) -> None:
    """The memory of every process over the soak, with what was done to the program as shades behind it."""
    figure = Figure(figsize=(10, 4.8), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    shaded: set[str] = set()
    for phase in ledger.phases:
        if phase.kind in _SHADES:
            end = phase.ended_s if phase.ended_s is not None else ledger.now()
            label = phase.kind if phase.kind not in shaded else None
            axes.axvspan(phase.began_s / 60, end / 60, color=_SHADES[phase.kind], linewidth=0, label=label)
            shaded.add(phase.kind)
    for loop, color in _COLORS.items():
        pids = dict.fromkeys(sample.pid for sample in samples if sample.loop == loop)
        for i, pid in enumerate(pids):
            own = [sample for sample in samples if sample.loop == loop and sample.pid == pid]
            axes.plot(
                [s.at_s / 60 for s in own], [s.mb for s in own], color=color, lw=1.2, label=loop if i == 0 else None
            )
    axes.axvline(calm_s / 60, color="#303030", lw=0.8, ls="--")
    axes.set_xlabel("minutes; after the dashed line nothing is killed")
    axes.set_ylabel("MB (proportional set size)")
    axes.set_ylim(0, 1.3 * max((sample.mb for sample in samples), default=1.0))  # room for the legend
    axes.legend(loc="upper left", ncols=3, fontsize=8, frameon=False)
    axes.grid(axis="y", color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file)
