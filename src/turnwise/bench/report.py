"""What every bench prints and writes: a table of figures with its command, machine and date, into BENCHMARKS.md."""

from __future__ import annotations

import datetime
import platform
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from turnwise import __version__
from turnwise.machine import cores
from turnwise.patterns import MULTILINE, pattern


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured line. ``ratio`` is against the peer or limit that ``beside`` names, measured in the same run."""

    what: str
    value: str
    beside: str = ""
    ratio: str = ""


@dataclass(frozen=True, slots=True)
class Grid:
    """A table of many cells, for what does not fit into figures of one line."""

    title: str
    header: list[str]
    rows: list[list[str]]


@dataclass(frozen=True, slots=True)
class BenchReport:
    """All figures of one command."""

    command: str
    figures: list[Figure]
    notes: list[str]
    grids: list[Grid] = field(default_factory=list)

    def print(self, console: Console) -> None:
        table = Table("figure", "measured", "beside", "ratio", title=self.command)
        for figure in self.figures:
            table.add_row(figure.what, figure.value, figure.beside, figure.ratio)
        if self.figures:
            console.print(table)
        for grid in self.grids:
            table = Table(*grid.header, title=grid.title)
            for row in grid.rows:
                table.add_row(*row)
            console.print(table)
        for note in self.notes:
            console.print(f"- {note}", highlight=False)

    def write(self, path: Path) -> None:
        """Put this report into the file in place of the last one of the same command."""
        text = path.read_text(encoding="utf-8") if path.exists() else "# Benchmarks\n"
        section = self._markdown()
        head = f"## `{self.command}`\n"
        before, known, after = f"\n{text}".partition(f"\n{head}")
        if known:
            next_one = f"\n{after}".find("\n## ")
            text = f"{before}\n"[1:] + section + (after[next_one:] if next_one >= 0 else "")
        else:
            text = f"{text.rstrip()}\n\n{section}"
        path.write_text(text.rstrip() + "\n", encoding="utf-8")

    def _markdown(self) -> str:
        figures = [[f.what, f.value, f.beside, f.ratio] for f in self.figures]
        tables = _table(["figure", "measured", "beside", "ratio"], figures) if figures else []
        for grid in self.grids:
            tables += [f"### {grid.title}", "", *_table(grid.header, grid.rows)]
        notes = [f"- {note}" for note in self.notes]
        return "\n".join(
            [
                f"## `{self.command}`",
                "",
                f"{datetime.date.today().isoformat()}, turnwise {__version__}, {machine()}.",
                "",
                *tables,
                *notes,
                "",
                "",
            ]
        )


def _table(header: list[str], rows: list[list[str]]) -> list[str]:
    """Lines of a Markdown table, with the empty line after it."""
    lines = [header, ["---"] * len(header), *rows]
    return [*(f"| {' | '.join(cells)} |" for cells in lines), ""]


def machine() -> str:
    """The machine in a few words: processor, cores, memory, Python."""
    memory = psutil.virtual_memory().total / 2**30
    load = psutil.getloadavg()[0]
    return (
        f"{_processor()}, {cores()} cores, {memory:.0f} GiB, Python {platform.python_version()}, "
        f"load {load:.1f} at the end"
    )


_PROCESSOR = pattern(r"^model name\s*: (.+)$", MULTILINE)


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        found = _PROCESSOR.search(info.read_text(encoding="utf-8"))
        if found:
            return found.group(1).strip()
    return platform.processor() or platform.machine()
