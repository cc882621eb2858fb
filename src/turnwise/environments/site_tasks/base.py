"""A family of tasks on a site: what a seed makes of it, and the moves of somebody who knows how it is done.

A move names what is seen on a page by its words, never by its place: where it stands is read from the page as an agent
gets it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Ask = Callable[[str], list[tuple[Any, ...]]]
"""What a query gives on the data that a site begins with."""
BUTTONS = ("button", "input", "a")
FIELDS = ("input", "textarea")


@dataclass(frozen=True, slots=True)
class Move:
    """One thing to do with what has these words: click on it, write ``text`` into it, or choose that from its list.

    ``go``: open the path ``text``. ``done``: end with ``text``, once ``words`` stand on the page. ``below``: it stands
    under these words; ``nth`` says which of those it is, from 0 on. Without ``words`` any of ``tags`` is meant.
    """

    what: Literal["click", "write", "choose", "go", "done"]
    words: str
    tags: tuple[str, ...]
    text: str = ""
    below: str | None = None
    nth: int = 0


@dataclass(frozen=True, slots=True)
class SiteCase:
    """One task: what is asked for, the goal as data, and the moves that reach it."""

    prompt: str
    goal: Mapping[str, object]
    moves: Sequence[Move]


@dataclass(frozen=True, slots=True)
class SiteFamily:
    """``make`` is given a source of chance that a seed made, and the site's data to ask."""

    name: str
    site: str
    says: str
    make: Callable[[random.Random, Ask], SiteCase]


def click(words: str, *tags: str, below: str | None = None) -> Move:
    return Move("click", words, tags or BUTTONS, below=below)


def link(words: str, below: str | None = None) -> Move:
    return Move("click", words, ("a",), below=below)


def write(field: str, text: str, below: str | None = None) -> Move:
    return Move("write", field, FIELDS, text, below)


def choose(field: str, option: str) -> Move:
    return Move("choose", field, ("select",), option)


def go(path: str) -> Move:
    return Move("go", "", (), path)


def answer(text: str, seen: str | None = None) -> Move:
    """End with an answer, where it (or ``seen``) stands on the page: it can be read there."""
    return Move("done", text if seen is None else seen, (), text)


def done() -> Move:
    return Move("done", "", (), "Done.")


def quoted(text: str) -> str:
    """A text in SQL."""
    return "'" + text.replace("'", "''") + "'"
