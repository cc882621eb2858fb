"""What a family of terminal tasks is: a pure function of a source of chance and a difficulty, and what it needs.

Nothing here looks at the machine. The same seed gives the same task, byte for byte, on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from turnwise.environments.base import Task

MOST_DIFFICULT = 3
ELSE_UNCHANGED = "Change nothing else."


@dataclass(frozen=True, slots=True)
class Drawn:
    """One task as a family draws it. ``setup`` are commands that make what is no plain text, ``changes`` the files of
    the beginning that a solution may change; every other one must stay as it is. ``checks``: see `checks.py`."""

    prompt: str
    oracle: tuple[str, ...]
    checks: tuple[Mapping[str, Any], ...]
    files: Mapping[str, str]
    setup: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Family:
    """``says`` is what its tasks ask in a few words; ``needs`` are programs without which nobody can solve them."""

    name: str
    theme: str
    says: str
    draw: Callable[[Random, int], Drawn]
    needs: tuple[str, ...] = ()

    def task(self, seed: int, difficulty: int) -> Task:
        """The task of this seed and difficulty (1 to 3)."""
        drawn = self.draw(Random(f"{self.name}/{seed}/{difficulty}"), difficulty)
        looked_at = {str(check["way"]) for check in drawn.checks} | set(drawn.changes)
        kept = [is_file(way, text) for way, text in drawn.files.items() if way not in looked_at]
        data: dict[str, Any] = {"files": dict(drawn.files), "checks": [*drawn.checks, *kept]}
        data |= {"setup": list(drawn.setup)} if drawn.setup else {}
        prompt = f"{drawn.prompt} {ELSE_UNCHANGED}"
        return Task(f"{self.name}-{difficulty}-{seed}", "terminal", prompt, data | {"oracle": list(drawn.oracle)})


def is_file(way: str, text: str) -> dict[str, Any]:
    """The check that a file has this content."""
    return {"kind": "file", "way": way, "is": text}


def is_gone(way: str) -> dict[str, Any]:
    """The check that nothing stands there."""
    return {"kind": "gone", "way": way}


def has_mode(way: str, mode: str) -> dict[str, Any]:
    """The check of the permissions, in octal."""
    return {"kind": "mode", "way": way, "is": mode}


def lines(*parts: object) -> str:
    """The parts as lines of a file."""
    return "".join(f"{part}\n" for part in parts)
