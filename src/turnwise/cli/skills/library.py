"""What the commands of skills share: the library of a home, and how they speak."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from turnwise.cli.options import out, read_config

if TYPE_CHECKING:
    from turnwise.journal import Journal
    from turnwise.skills.library import Library

T = TypeVar("T")


def with_library(config: Path | None, home: Path | None, do: Callable[[Library, Journal], T]) -> T:
    """What a call on the library of a home gives; the journal is made where there is none."""
    from turnwise.journal import Journal
    from turnwise.skills.library import Library

    settings = read_config(config, home, None)
    with closing(Journal.open(settings)) as journal:
        return do(Library(settings, journal), journal)


def counted(skills: int) -> str:
    return f"{skills} skill{'s' if skills > 1 else ''}"


def say(text: str) -> None:
    out.print(text, highlight=False, markup=False, soft_wrap=True)
