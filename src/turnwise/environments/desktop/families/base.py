"""What a family of desktop tasks is: a pure function of a source of chance. The same seed gives the same task.

An oracle is what a hand would do, and so is a spoiler, which does the like and gets it wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from turnwise.environments.base import Task
from turnwise.environments.terminal.families.base import ELSE_UNCHANGED, is_file

Deeds = tuple[tuple[str, Mapping[str, Any]], ...]
"""Names of tools and their arguments."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """One task as a family draws it. ``plan`` are the deeds that solve it where its argument is True, and that miss it
    by a little where it is False. Files that no check names must stay as they are."""

    prompt: str
    plan: Callable[[bool], Deeds]
    files: Mapping[str, str] = field(default_factory=dict)
    checks: Sequence[Mapping[str, Any]] = ()
    folders: Sequence[str] = ()
    made: Sequence[str] = ()
    opens: Sequence[tuple[str, str | None]] = ()
    front: str | None = None


@dataclass(frozen=True, slots=True)
class DeskFamily:
    """``theme``: the programs it is about; ``says`` what its tasks ask, in a few words."""

    name: str
    theme: str
    says: str
    draw: Callable[[Random], Drawing]

    def task(self, seed: int) -> Task:
        """The task of this seed."""
        drawn = self.draw(Random(f"{self.name}/{seed}"))
        looked_at = {str(check["way"]) for check in drawn.checks}
        kept = [is_file(way, text) for way, text in drawn.files.items() if way not in looked_at]
        data: dict[str, Any] = {"files": dict(drawn.files), "checks": [*drawn.checks, *kept]}
        data |= {
            "folders": list(drawn.folders),
            "made": list(drawn.made),
            "opens": [list(each) for each in drawn.opens],
        }
        data |= {"front": drawn.front} if drawn.front is not None else {}
        plans = {"oracle": [*drawn.plan(True), SUBMITTED], "spoiler": [*drawn.plan(False), SUBMITTED]}
        prompt = f"{drawn.prompt} {ELSE_UNCHANGED}"
        return Task(
            f"{self.name}-{seed}", "desktop", prompt, {key: value for key, value in data.items() if value} | plans
        )


SUBMITTED: tuple[str, Mapping[str, Any]] = ("submit", {})


def clicks(*elements: str, double: bool = False) -> Deeds:
    """One click after the other, each on the only element of this name."""
    return tuple(("click", {"element": name} | ({"double": True} if double else {})) for name in elements)


def types(text: str) -> Deeds:
    return (("type", {"text": text}),)


def presses(keys: str) -> Deeds:
    return (("key", {"keys": keys}),)


def opens(program: str) -> Deeds:
    return (("open", {"program": program}),)


def saves_as(name: str) -> Deeds:
    """Into a new file of the editor."""
    return (*presses("ctrl+s"), *presses("ctrl+a"), *types(name), *clicks("Save"))
