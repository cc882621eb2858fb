"""What the commands share: how they print, their common options, and reading configuration and journal."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, ConsoleDimensions

from turnwise.config import Config, load_config
from turnwise.errors import ConfigError, TurnwiseError
from turnwise.loops.process import parse_overrides

if TYPE_CHECKING:
    from turnwise.journal import Journal


UNCUT = 10_000
"""Columns of what is no terminal."""


class Screen(Console):
    """A console as wide as COLUMNS says when it prints; rich alone would keep what it said at import.

    What goes into a pipe or a file is read by programs: there nothing is wrapped or cut.
    """

    @property
    def size(self) -> ConsoleDimensions:
        columns = os.environ.get("COLUMNS", "")
        found = super().size
        if columns.isdecimal() and int(columns):
            return ConsoleDimensions(int(columns), found.height)
        return found if self.is_terminal else ConsoleDimensions(UNCUT, found.height)

    @size.setter
    def size(self, new_size: tuple[int, int]) -> None:
        self._width, self._height = new_size


out = Screen()
err = Screen(stderr=True)

ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="TOML file; default: config.toml in the home folder.")
]
Home = Annotated[Path | None, typer.Option("--home", help="Home folder (environment: TURNWISE_HOME).")]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override one setting.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would go and change nothing.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def read_config(config: Path | None, home: Path | None, sets: list[str] | None, **more: object) -> Config:
    return load_config(config, {"home": home and home.absolute()} | more | parse_overrides(sets or []))


def read_config_of(
    command: str, reads: Sequence[str], config: Path | None, home: Path | None, sets: list[str] | None
) -> Config:
    """The configuration of a command that reads these keys alone; one that ends in a dot stands for its section.

    Raises ConfigError for a setting of another key, which would change nothing. The home has the file of settings, so
    its key is always read.
    """
    settings = read_config(config, home, sets)
    for key in parse_overrides(sets or []):
        if key != "home" and not any(key == known or (known[-1] == "." and key.startswith(known)) for known in reads):
            known = ", ".join(f"{known}*" if known[-1] == "." else known for known in reads) or "no setting"
            raise ConfigError(
                f"`turnwise {command}` does not read {key}, so it would measure the same without it: leave "
                f"--set {key}=… out (played like this it reads {known})"
            )
    return settings


def print_json(value: Any) -> None:
    """For programs, and on a terminal too: nothing in it can be a terminal's command."""
    out.print_json(json.dumps(value), ensure_ascii=True)


def read_journal(settings: Config, read: Callable[[Journal], Any]) -> Any:
    """Look something up in the journal of a home that has one; nothing is written, and no schema changed."""
    from turnwise.journal.read_only import read_ours

    _has_journal(settings)
    return read_ours(settings, read)


def change_journal(settings: Config, change: Callable[[Journal], Any]) -> Any:
    """Write to the journal of a home that has one."""
    from turnwise.journal import Journal

    _has_journal(settings)
    with closing(Journal.open(settings)) as journal:
        return change(journal)


def _has_journal(settings: Config) -> None:
    from turnwise.journal.read_only import exists

    if not exists(settings):
        raise TurnwiseError(f"there is no journal in {settings.home} yet; start `turnwise serve`, or see --home")


def remove_ours(path: Path) -> None:
    """Take a file away that says it is of this process; another server's stays."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        if json.loads(path.read_text(encoding="utf-8")).get("pid") == os.getpid():
            path.unlink()


def ago(at: float) -> str:
    seconds = max(0, time.time() - at)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"
