"""The data of MetaClaw-Bench: days with their questions, and the files that an agent finds in the morning.

The folder has `eval/dayNN/questions.json` and `workspaces/shared/`, with the files of all days and a folder `dayNN`.
Rounds that cannot be played fairly are read too, and marked with the reason; they are never asked.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from turnwise.bench.metaclaw.commands import Part, read_command
from turnwise.errors import BenchDataError, FolderFault
from turnwise.patterns import pattern
from turnwise.sandbox.folder import GuestFolder

MOST_OF_QUESTIONS = 4 << 20
"""Bytes of a questions.json."""
MOST_DAYS = 400
MOST_ROUNDS = 200
MOST_OPTIONS = 26
MOST_INPUTS = 500
MOST_OF_INPUTS = 32 << 20
"""Bytes of all files that an agent finds on one day."""

_PROGRAM = pattern(r"\b[A-Za-z0-9_]{1,60}\.(?:py|sh)\b")

Kind = Literal["file_check", "multi_choice"]


class _Feedback(msgspec.Struct):
    correct: str = ""
    incorrect: str = ""
    options: dict[str, str] = {}


class _Checked(msgspec.Struct):
    command: str = ""
    expect_exit: int = 0
    options: dict[str, str] = {}
    answer: list[str] = []


class _Asked(msgspec.Struct):
    id: str
    type: Kind
    question: str
    eval: _Checked
    feedback: _Feedback = msgspec.field(default_factory=_Feedback)
    update: list[Any] = []


class _Questions(msgspec.Struct):
    id: str
    rounds: list[_Asked]
    desc: str = ""


@dataclass(frozen=True, slots=True)
class Round:
    """A question of a day, and how its answer is checked. ``aside``: why it is not asked."""

    id: str
    kind: Kind
    question: str
    feedback: _Feedback
    options: tuple[str, ...] = ()
    answer: frozenset[str] = frozenset()
    parts: tuple[Part, ...] = ()
    aside: str | None = None

    def reply(self, passed: bool, chosen: frozenset[str]) -> str:
        """What the person says to an answer."""
        if passed:
            return self.feedback.correct or "That is right."
        if self.kind == "file_check":
            return self.feedback.incorrect or "That is not right."
        wrong = [option for option in self.options if (option in chosen) != (option in self.answer)]
        told = [text for option in wrong if (text := self.feedback.options.get(option))]
        return "\n".join(["That is not right.", *told])


@dataclass(frozen=True, slots=True)
class Workday:
    """A day's rounds in order, and the files that lie there in the morning, by their ways."""

    id: str
    rounds: tuple[Round, ...]
    inputs: Mapping[str, bytes] = field(repr=False)


def read_days(folder: Path) -> list[Workday]:
    """All days of the data, in order. Raises BenchDataError with the file and what is wrong in it."""
    files = sorted(folder.glob("eval/*/questions.json"))
    if not files:
        raise BenchDataError(
            f"there is no eval/dayNN/questions.json in {folder}; name the folder of MetaClaw-Bench's data"
        )
    if len(files) > MOST_DAYS:
        raise BenchDataError(f"{folder} has more than {MOST_DAYS} days")
    return [_read_day(folder, file) for file in files]


def digest_of(days: list[Workday]) -> str:
    """Tells the same days from others."""
    told = hashlib.sha256()
    for day in days:
        told.update(repr((day.id, sorted((way, len(content)) for way, content in day.inputs.items()))).encode())
        for asked in day.rounds:
            told.update(repr((asked.id, asked.question, sorted(asked.answer), asked.aside)).encode())
    return told.hexdigest()[:16]


def _read_day(folder: Path, file: Path) -> Workday:
    try:
        content = GuestFolder(folder).read(str(file.relative_to(folder)), MOST_OF_QUESTIONS)
        read = msgspec.json.decode(content, type=_Questions)
    except (FolderFault, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
        raise BenchDataError(f"{file} cannot be read: {e}") from None
    day = file.parent.name
    if not read.rounds or len(read.rounds) > MOST_ROUNDS:
        raise BenchDataError(f"{file} has {len(read.rounds)} rounds; a day has 1 to {MOST_ROUNDS}")
    if len({asked.id for asked in read.rounds}) < len(read.rounds):
        raise BenchDataError(f"{file} has two rounds of one id")
    inputs = _inputs(folder / "workspaces" / "shared", day)
    return Workday(day, tuple(_round(asked, inputs, file) for asked in read.rounds), inputs)


def _round(asked: _Asked, inputs: Mapping[str, bytes], file: Path) -> Round:
    where = f"{file}, round {asked.id}"
    if asked.type == "multi_choice":
        options, answer = tuple(asked.eval.options), frozenset(asked.eval.answer)
        if not answer or not answer <= set(options) or len(options) > MOST_OPTIONS:
            raise BenchDataError(f"{where}: its answer must be among 1 to {MOST_OPTIONS} options")
        aside = "it changes the day's files as it goes, which is not supported" if asked.update else None
        return Round(asked.id, asked.type, asked.question, asked.feedback, options, answer, aside=aside)
    parts: tuple[Part, ...] = ()
    aside = _lacks(asked, inputs)
    try:
        parts = tuple(read_command(asked.eval.command))
        if asked.eval.expect_exit:
            raise BenchDataError("it expects a check to fail")
    except BenchDataError as e:
        aside = f"its check is not understood: {e}"
    return Round(asked.id, asked.type, asked.question, asked.feedback, parts=parts, aside=aside)


def _lacks(asked: _Asked, inputs: Mapping[str, bytes]) -> str | None:
    """Why a round cannot be done with the files that are here: it speaks of a program that the data leaves out."""
    if asked.update:
        return "it changes the day's files as it goes, which is not supported"
    here = {way.rpartition("/")[2] for way in inputs}
    missing = sorted(set(_PROGRAM.findall(asked.question)) - here)
    return f"it needs {', '.join(missing)}, which is not in the data" if missing else None


def _inputs(shared: Path, day: str) -> dict[str, bytes]:
    """The files of all days and those of this one. No link is followed."""
    if not shared.is_dir():
        raise BenchDataError(f"there is no folder {shared}; it has the files that the questions speak of")
    found: dict[str, bytes] = {}
    guest, size = GuestFolder(shared), 0
    ways = [path.name for path in sorted(shared.iterdir()) if path.is_file()]
    for place, folders, names in os.walk(shared / day, followlinks=False):
        folders.sort()
        ways += [str((Path(place) / name).relative_to(shared)) for name in sorted(names)]
    for way in ways[: MOST_INPUTS + 1]:
        try:
            found[way] = guest.read(way, MOST_OF_INPUTS)
        except (FolderFault, FileNotFoundError) as e:
            raise BenchDataError(f"{shared / way} cannot be read: {e}") from None
        size += len(found[way])
    if len(ways) > MOST_INPUTS or size > MOST_OF_INPUTS:
        raise BenchDataError(f"{day} has more than {MOST_INPUTS} files or {MOST_OF_INPUTS >> 20} MB of them")
    return found
