"""Plays a day: its questions in order in one folder, each with what the person says to the answer before it.

Checks happen here, outside of the agent's folder and after its commands have ended, on files that are only read.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from turnwise.bench.metaclaw.commands import RuleCheck, check
from turnwise.bench.metaclaw.data import Kind, Round, Workday
from turnwise.bench.metaclaw.rules import Surroundings
from turnwise.errors import FolderFault
from turnwise.sandbox.folder import GuestFolder, delete_folder

MOST_OF_WHY = 300
"""Characters of a reason that are kept."""


class BenchAgent(Protocol):
    """Somebody who does a day's work."""

    @property
    def name(self) -> str: ...

    def begin(self, day: Workday, folder: GuestFolder) -> None:
        """A day begins; its files lie in the folder."""

    def answer(self, asked: Round, feedback: str | None) -> tuple[str, int]:
        """Do a round's work, and give the answer's text and how many steps it took. ``feedback``: on the one before."""
        ...

    def end(self, feedback: str | None) -> None:
        """The day is over. ``feedback``: on its last round."""


class RoundPoint(msgspec.Struct, frozen=True):
    """How a round went. ``share``: of the options that were judged right; of a file check it is 1 or 0."""

    day: str
    round: str
    kind: Kind
    passed: bool
    share: float
    why: str
    steps: int
    seconds: float


def play_day(
    day: Workday, agent: BenchAgent, place: Path, note: Callable[[RoundPoint], None] = lambda _: None
) -> list[RoundPoint]:
    """Play a day in the new folder ``place``, which is gone afterwards; each point is noted when it is known.

    What the agent raises ends the day: an endpoint that is down is no wrong answer.
    """
    delete_folder(place)
    folder = GuestFolder(place)
    try:
        place.mkdir(parents=True, mode=0o700)
        for way, content in day.inputs.items():
            folder.write(way, content)
        agent.begin(day, folder)
        points: list[RoundPoint] = []
        feedback: str | None = None
        for asked in day.rounds:
            if asked.aside is None:
                point, feedback = _play_round(day, asked, agent, folder, feedback)
                points.append(point)
                note(point)
        agent.end(feedback)
        return points
    finally:
        delete_folder(place)


def _play_round(
    day: Workday, asked: Round, agent: BenchAgent, folder: GuestFolder, feedback: str | None
) -> tuple[RoundPoint, str]:
    started = time.monotonic()
    around = Surroundings(folder, day.inputs, _before(asked, folder))
    said, steps = agent.answer(asked, feedback)
    chosen: frozenset[str] = frozenset()
    if asked.kind == "file_check":
        fault = check(asked.parts, around)
        passed, share, why = fault is None, float(fault is None), fault or ""
    else:
        chosen = chosen_in(said, asked.options)
        passed, share = chosen == asked.answer, _share_right(chosen, asked)
        why = "" if passed else f"chose {','.join(sorted(chosen)) or 'nothing'}, not {','.join(sorted(asked.answer))}"
    seconds = round(time.monotonic() - started, 2)
    point = RoundPoint(day.id, asked.id, asked.kind, passed, share, why[:MOST_OF_WHY], steps, seconds)
    return point, asked.reply(passed, chosen)


def chosen_in(said: str, options: tuple[str, ...]) -> frozenset[str]:
    r"""The options of the last `\bbox{A,C}` in an answer; none where it has another word than options in it."""
    _, opened, rest = said.rpartition("bbox{")
    inside, closed, _ = rest.partition("}")
    words = [word.strip() for word in inside.split(",")]
    return frozenset(words) if opened and closed and set(words) <= set(options) else frozenset()


def _share_right(chosen: frozenset[str], asked: Round) -> float:
    """Of the options, those that are rightly taken or left. An answer without an option has none."""
    if not chosen:
        return 0.0
    return sum((option in chosen) == (option in asked.answer) for option in asked.options) / len(asked.options)


def _before(asked: Round, folder: GuestFolder) -> dict[str, bytes]:
    """What lies in the files whose backup a round is checked for."""
    checks = [p for p in asked.parts if isinstance(p, RuleCheck) and p.script == "check_backup.py"]
    found: dict[str, bytes] = {}
    for way in [word for part in checks for word in part.words if isinstance(word, str)]:
        try:
            found[way] = folder.read(way)
        except (FolderFault, FileNotFoundError):
            continue
    return found
