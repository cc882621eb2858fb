"""Shows where the demo is: bars with the stage, time left and score so far; plain lines when nobody looks on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn


class Stages:
    """The stages of a run, each with the seconds it is expected to take. Use as a context manager.

    The expected seconds are only weights: the time left comes from how long their part has taken so far.
    """

    def __init__(self, console: Console, expected_s: dict[str, float], *, clock: Callable[[], float] = time.monotonic):
        self._console = console
        self._expected = expected_s
        self._clock = clock
        self._started = clock()
        self._finished_weight = 0.0
        self._weight = 0.0
        self._bars = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", justify="left"),
            BarColumn(bar_width=28),
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.fields[note]}"),
            console=console,
        )
        self._whole: TaskID | None = None

    def __enter__(self) -> Stages:
        if self._console.is_terminal:
            self._bars.start()
            self._whole = self._bars.add_task("[bold]the whole demo", total=1.0, note="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._bars.stop()

    @contextmanager
    def stage(self, name: str, total: int = 1) -> Iterator[Callable[[float | None], None]]:
        """Enter the stage ``name`` of ``total`` parts. Yields ``advance(score so far or None)``."""
        weight = self._expected[name]
        started, done = self._clock(), 0
        quarter = max(1, total // 4)
        bar = self._bars.add_task(name, total=total, note="") if self._console.is_terminal else None
        if bar is None:
            self._line(name, "begins")

        def advance(score: float | None) -> None:
            nonlocal done
            done += 1
            self._show_whole(self._finished_weight + weight * min(1.0, done / total))
            note = f"score {score:.2f}" if score is not None else ""
            if bar is not None:
                self._bars.update(bar, completed=done, note=note)
            elif total > 1 and done % quarter == 0 and done < total:
                self._line(name, f"{done}/{total}", note, f"{self._left()} left")

        yield advance
        self._finished_weight += weight
        self._show_whole(self._finished_weight)
        if bar is not None:
            self._bars.update(bar, completed=total)
        else:
            self._line(name, f"done in {self._clock() - started:.0f} s", f"{self._left()} left")

    def _show_whole(self, weight: float) -> None:
        self._weight = weight
        if self._whole is not None:
            share = weight / sum(self._expected.values())
            self._bars.update(self._whole, completed=share, note=f"{self._left()} left")

    def _left(self) -> str:
        """The time left as text, from the pace so far."""
        total, weight = sum(self._expected.values()), self._weight
        if not weight:
            return "?"
        seconds = max(0.0, (self._clock() - self._started) * (total - weight) / weight)
        return f"{int(seconds // 60)}:{int(seconds % 60):02d}"

    def _line(self, *parts: str) -> None:
        self._console.print("demo:", " · ".join(part for part in parts if part), highlight=False)
