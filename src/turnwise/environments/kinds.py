"""The kinds of environments that can be hosted, a table. A kind is loaded when the first of its tasks is."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module

from turnwise.environments.base import Kind, Task
from turnwise.errors import DataError

KINDS = {
    "terminal": "turnwise.environments.terminal.kind",
    "desktop": "turnwise.environments.desktop.kind",
    "swe": "turnwise.environments.swe.kind",
    "tools": "turnwise.environments.tools.kind",
    "openenv": "turnwise.environments.openenv.kind",
    "verifiers": "turnwise.environments.verified.kind",
    "web": "turnwise.environments.browser.kind",
}
"""Where each is. Its name is that of its stream."""
EXTRAS = {"web": "browser"}
"""Those whose packages are an extra of turnwise's."""


def kind_of(name: str) -> Kind:
    """Raises DataError for a name that there is not."""
    if name not in KINDS:
        raise DataError(f"there is no environment {name!r}, only {', '.join(KINDS)}")
    try:
        return import_module(KINDS[name]).KIND
    except ModuleNotFoundError as e:
        if name not in EXTRAS or (e.name or "").startswith("turnwise"):
            raise
        raise DataError(
            f"the environment {name!r} needs the package {e.name}; install it: pip install 'turnwise[{EXTRAS[name]}]'"
        ) from None


def check_oracles(tasks: Iterable[Task]) -> None:
    """Raises DataError where no solution of a task is known: an oracle would play it as one that does nothing."""
    for task in tasks:
        kind_of(task.environment).oracle(task)
