"""How robust a program of many stages is, over two sets of runs: as MetaClaw measured AutoResearchClaw (its Table 2).

The paper gives the weights and not how retries and cycles become shares; the two formulas are ours and stand below.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from turnwise.bench.report import BenchReport, Figure
from turnwise.errors import BenchDataError
from turnwise.skills.pipeline.runs import PipelineRun

COMPLETION, RETRIES, CYCLES = 0.4, 0.3, 0.3
"""How much each counts in the composite."""


@dataclass(frozen=True, slots=True)
class Robustness:
    """One set of runs. ``retry_rate``: retries a stage; ``cycles``: refine cycles a stage; ``completion``: share of
    stages that are done. Stages that were skipped count as not done."""

    runs: int
    stages: int
    retry_rate: float
    cycles: float
    completion: float

    @property
    def composite(self) -> float:
        """0 to 1: 0.4 · completion + 0.3 · (1 − retry rate, not below 0) + 0.3 · 1 / (1 + cycles)."""
        return COMPLETION * self.completion + RETRIES * max(0.0, 1 - self.retry_rate) + CYCLES / (1 + self.cycles)


def robustness(runs: Sequence[PipelineRun]) -> Robustness:
    """The figures of a set. Raises BenchDataError where there is no stage to measure."""
    stages = [stage for run in runs for stage in run.stages]
    if not stages:
        raise BenchDataError("there is no stage in these runs; give at least one run on each side")
    return Robustness(
        runs=len(runs),
        stages=len(stages),
        retry_rate=sum(stage.retries for stage in stages) / len(stages),
        cycles=sum(stage.refine_cycles for stage in stages) / len(stages),
        completion=sum(stage.status == "done" for stage in stages) / len(stages),
    )


def bench_pipeline(before: Sequence[PipelineRun], after: Sequence[PipelineRun]) -> BenchReport:
    """The figures of both sets beside each other. Raises BenchDataError."""
    old, new = robustness(before), robustness(after)
    figures = [
        Figure("retries a stage (lower is better)", f"{new.retry_rate:.1%}", f"{old.retry_rate:.1%}",
               _change(old.retry_rate, new.retry_rate)),
        Figure("refine cycles a stage (lower is better)", f"{new.cycles:.2f}", f"{old.cycles:.2f}",
               _change(old.cycles, new.cycles)),
        Figure("stages done", f"{new.completion:.1%}", f"{old.completion:.1%}",
               _change(old.completion, new.completion)),
        Figure("composite", f"{new.composite:.3f}", f"{old.composite:.3f}", _change(old.composite, new.composite)),
    ]  # fmt: skip
    notes = [
        f"Measured: {_size(new)}; beside: {_size(old)}. The last column is the relative change.",
        "Composite: 0.4 · stages done + 0.3 · (1 − retries a stage, not below 0) + 0.3 / (1 + refine cycles a stage).",
    ]
    return BenchReport("turnwise bench pipeline", figures, notes)


def _change(old: float, new: float) -> str:
    """The relative change; from nothing there is none."""
    if old == new:
        return "±0.0%"
    return "from 0" if old == 0 else f"{(new - old) / old:+.1%}"


def _size(of: Robustness) -> str:
    return f"{of.runs} {'run' if of.runs == 1 else 'runs'}, {of.stages} stages"
