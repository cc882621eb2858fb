"""The families of terminal tasks, a table, and which of them this machine has the programs for."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence

from turnwise.environments.base import Task
from turnwise.environments.terminal.families import archives, files, permissions, processes, repositories, tables, text
from turnwise.environments.terminal.families.base import Family
from turnwise.errors import DataError

THEMES = (files, text, permissions, archives, repositories, processes, tables)
FAMILIES = {family.name: family for theme in THEMES for family in theme.FAMILIES}
INSIDE = "/usr/local/bin:/usr/bin:/bin"
"""Where the sandbox has its programs from."""


def named(names: Iterable[str]) -> list[Family]:
    """The families of these names. Raises DataError for one that there is not."""
    wanted = list(dict.fromkeys(names))
    if odd := [name for name in wanted if name not in FAMILIES]:
        raise DataError(f"there is no family {odd[0]!r}; `turnwise tasks terminal --list` shows them all")
    return [FAMILIES[name] for name in wanted]


def missing(family: Family) -> list[str]:
    """The programs that a family needs and that are not here."""
    return [program for program in family.needs if shutil.which(program, path=INSIDE) is None]


def left_out(families: Sequence[Family]) -> str | None:
    """A sentence about the families that nobody could solve here; None where there is none."""
    lacking = {family.name: missing(family) for family in families if missing(family)}
    if not lacking:
        return None
    programs = ", ".join(sorted({program for each in lacking.values() for program in each}))
    return f"left out, since {programs} is not here (`make sandbox` installs it): {', '.join(lacking)}"


def tasks_of(families: Sequence[Family], seeds: Iterable[int], difficulties: Sequence[int]) -> list[Task]:
    """Their tasks, family by family; those that need a missing program are left out."""
    drawn = list(seeds)
    here = [family for family in families if not missing(family)]
    return [family.task(seed, level) for family in here for level in difficulties for seed in drawn]
