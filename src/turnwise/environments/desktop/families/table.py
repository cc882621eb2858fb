"""The families of desktop tasks, a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from turnwise.environments.base import Task
from turnwise.environments.desktop.families import commanding, editing, filing, sheets
from turnwise.environments.desktop.families.base import DeskFamily
from turnwise.errors import DataError

FAMILIES = {family.name: family for theme in (editing, filing, sheets, commanding) for family in theme.FAMILIES}


def named(names: Iterable[str]) -> list[DeskFamily]:
    """The families of these names. Raises DataError for one that there is not."""
    wanted = list(dict.fromkeys(names))
    if odd := [name for name in wanted if name not in FAMILIES]:
        raise DataError(f"there is no family {odd[0]!r}; `turnwise tasks desktop --list` shows them all")
    return [FAMILIES[name] for name in wanted]


def tasks_of(families: Sequence[DeskFamily], seeds: Iterable[int]) -> list[Task]:
    """Their tasks, family by family."""
    drawn = list(seeds)
    return [family.task(seed) for family in families for seed in drawn]
