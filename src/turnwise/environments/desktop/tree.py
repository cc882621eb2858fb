"""What an accessibility tree says, as text that a model reads: windows, and numbered elements with their place.

The tree is an agent's programs': all of it may be odd or hostile, and is cut to a bounded size. An element keeps its
number through an episode, so that what changed can be told.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MOST_WINDOWS = 30
MOST_ELEMENTS = 250
"""That are told; of more, the number is told."""
MOST_GONE = 5
MOST_OF_A_NAME = 80
MOST_OF_A_TEXT = 600
MOST_OF_A_TERMINAL = 1200
MOST_OF_A_TREE = 7000
MOST_OF_A_CHANGE = 2500
"""Characters."""
SILENT = {
    "filler",
    "panel",
    "scroll pane",
    "split pane",
    "separator",
    "scroll bar",
    "layered pane",
    "viewport",
    "redundant object",
}
"""Roles that are only told where they have something to say."""
PARTS = {
    "page tab list",
    "menu bar",
    "tool bar",
    "table",
    "icon view",
    "unknown",
    "internal frame",
    "drawing area",
    "image",
}
WRITTEN = ("text", "entry", "terminal", "password text", "spin button")
"""Those that can be written into, be they empty."""
_SAID = ("focused", "selected", "checked", "expanded", "pressed")


@dataclass(frozen=True, slots=True)
class Element:
    """One element of a window. ``place``: x, y of its middle on the screen."""

    id: str
    role: str
    name: str
    text: str
    more: int
    """Characters that the text has beside those told."""
    states: tuple[str, ...]
    place: tuple[int, int]

    @property
    def says(self) -> str:
        """What it is and says, without its number and place."""
        parts = [self.role, *([f'"{self.name}"'] if self.name else [])]
        if self.role == "terminal":
            parts.append(f":\n{self.text}\n")
        elif self.text and self.text.strip() != self.name:
            parts.append(f": {json.dumps(self.text, ensure_ascii=False)}")
        if self.more:
            parts.append(f"(… {self.more} more characters)")
        if self.states:
            parts.append(f"({', '.join(self.states)})")
        return " ".join(parts).replace(" : ", ": ")


@dataclass(frozen=True, slots=True)
class DeskWindow:
    """A window by its title."""

    id: str
    title: str
    program: str
    role: str
    active: bool
    place: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Tree:
    """One look at a desktop."""

    windows: tuple[DeskWindow, ...] = ()
    elements: tuple[Element, ...] = ()
    silent: tuple[str, ...] = ()
    """Programs that do not answer."""
    cut: bool = False

    @property
    def active(self) -> DeskWindow | None:
        return next((window for window in self.windows if window.active), None)


@dataclass(slots=True)
class Numbers:
    """The numbers of windows and elements of an episode."""

    known: dict[str, int] = field(default_factory=dict)

    def of(self, which: str) -> int:
        return self.known.setdefault(which, len(self.known) + 1)

    def find(self, tree: Tree, number: int) -> DeskWindow | Element | None:
        """What has this number now."""
        return next((each for each in (*tree.windows, *tree.elements) if self.known.get(each.id) == number), None)


def read_tree(raw: Mapping[str, Any], width: int, height: int) -> Tree:
    """The tree that was told, as far as it is one. What lies outside of the screen is left out."""
    windows = [window for each in _objects(raw.get("windows"))[:MOST_WINDOWS] if (window := _window(each)) is not None]
    elements: list[Element] = []
    for each in _objects(raw.get("elements")):
        found = _element(each, width, height)
        if found is not None and not _repeats(found, elements):
            elements.append(found)
    cut = raw.get("cut") is True or len(elements) > MOST_ELEMENTS
    silent = raw.get("silent")
    named = {_short(str(name), MOST_OF_A_NAME) for name in silent[:MOST_WINDOWS]} if isinstance(silent, list) else set()
    return Tree(tuple(windows), tuple(elements[:MOST_ELEMENTS]), tuple(sorted(named)), cut)


def written(tree: Tree, numbers: Numbers) -> str:
    """The whole tree as text."""
    lines = [_windows(tree, numbers)]
    lines += [f"{program} does not answer." for program in tree.silent]
    size = sum(map(len, lines))
    for told, element in enumerate(tree.elements):
        line = _line(element, numbers)
        size += len(line) + 1
        if size > MOST_OF_A_TREE:
            lines.append(f"(… {len(tree.elements) - told} more elements)")
            break
        lines.append(line)
    if tree.cut:
        lines.append("(… there are more elements than can be looked at)")
    return "\n".join(lines)


def changed(before: Tree, after: Tree, numbers: Numbers) -> str:
    """What is new, other or gone; empty where nothing is."""
    lines: list[str] = []
    titles = [{window.id: window.title for window in tree.windows} for tree in (before, after)]
    lines += [f'A window opened: "{title}".' for which, title in titles[1].items() if which not in titles[0]]
    lines += [f'The window "{title}" closed.' for which, title in titles[0].items() if which not in titles[1]]
    for which, title in titles[1].items():
        if titles[0].get(which, title) != title:
            lines.append(f'The window "{titles[0][which]}" is called "{title}" now.')
    now = after.active
    if now is not None and (before.active is None or before.active.id != now.id):
        lines.append(f'"{now.title}" is in front now.')
    lines += [f"{program} does not answer." for program in after.silent if program not in before.silent]
    lines += _elements_changed(before, after, numbers)
    size, kept = 0, []
    for line in lines:
        size += len(line) + 1
        if size > MOST_OF_A_CHANGE:
            kept.append(f"(… {len(lines) - len(kept)} more changes)")
            break
        kept.append(line)
    return "\n".join(kept)


def is_new_view(before: Tree, after: Tree) -> bool:
    """Whether so much is other that the whole tree says it better."""
    old, new = ({element.id for element in tree.elements} for tree in (before, after))
    first, second = before.active, after.active
    other_window = (first and first.id) != (second and second.id)
    return other_window or len(new - old) > max(20, len(new) // 2)


def _elements_changed(before: Tree, after: Tree, numbers: Numbers) -> Iterator[str]:
    old, new = ({element.id: element for element in tree.elements} for tree in (before, after))
    for which, element in new.items():
        if which not in old:
            yield f"new: {_line(element, numbers)}"
        elif old[which].says != element.says:
            yield f"now: {_line(element, numbers)}"
    gone = [element for which, element in old.items() if which not in new]
    for element in gone[:MOST_GONE]:
        name = element.name or " ".join(element.text[:MOST_OF_A_NAME].split())
        yield f'gone: [{numbers.of(element.id)}] {element.role} "{name}"'
    if len(gone) > MOST_GONE:
        yield f"gone: {len(gone) - MOST_GONE} more"


def _windows(tree: Tree, numbers: Numbers) -> str:
    if not tree.windows:
        return "No window is open."
    said = [
        f'[{numbers.of(window.id)}] "{window.title}"{" (in front)" if window.active else ""}' for window in tree.windows
    ]
    return f"Windows: {', '.join(said)}"


def _line(element: Element, numbers: Numbers) -> str:
    x, y = element.place
    return f"[{numbers.of(element.id)}] {element.says} at {x},{y}"


def _repeats(found: Element, elements: Sequence[Element]) -> bool:
    """Whether an element only says again what the one before it said, at the same place."""
    last = elements[-1] if elements else None
    same = last is not None and last.role == found.role == "table cell" and (last.name or last.text) == found.name
    return bool(same)


def _objects(given: object) -> list[Mapping[str, Any]]:
    return [each for each in given if isinstance(each, dict)] if isinstance(given, list) else []


def _window(raw: Mapping[str, Any]) -> DeskWindow | None:
    which, states = raw.get("id"), raw.get("states")
    if not isinstance(which, str) or not isinstance(states, list):
        return None
    title, program = (_short(str(raw.get(key, "")), MOST_OF_A_NAME) for key in ("name", "program"))
    role = _short(str(raw.get("kind", "")), MOST_OF_A_NAME)
    return DeskWindow(
        which[:300], title or program, program, role, "active" in states, _middle(raw.get("place")) or (0, 0)
    )


def _element(raw: Mapping[str, Any], width: int, height: int) -> Element | None:
    """An element that is worth to be told."""
    which, states, place = raw.get("id"), raw.get("states"), _middle(raw.get("place"))
    if not isinstance(which, str) or not isinstance(states, list):
        return None
    role = _short(str(raw.get("kind", "")), MOST_OF_A_NAME)
    name = _short(str(raw.get("name") or raw.get("about") or ""), MOST_OF_A_NAME)
    most = MOST_OF_A_TERMINAL if role == "terminal" else MOST_OF_A_TEXT
    text = str(raw.get("text") or "")
    text = _clean(text[-most:] if role == "terminal" else text[:most])
    said = tuple(state for state in _SAID if state in states)
    if place is None or not (0 <= place[0] < width and 0 <= place[1] < height):
        return None
    if role == "table cell" and not name and not text:
        return None
    if "focused" not in said and role not in WRITTEN:
        unnamed = not name and not text
        if role in SILENT or unnamed or (role in PARTS and not text):
            return None
    size = raw.get("size")
    more = max(0, size - most) if isinstance(size, int) and not isinstance(size, bool) and role != "terminal" else 0
    return Element(which[:300], role, name, text, min(more, 10**9), said, place)


def _middle(place: object) -> tuple[int, int] | None:
    """The middle of a place of four numbers; None where it has no extent."""
    if not isinstance(place, list) or len(place) != 4 or not all(type(each) is int for each in place):
        return None
    x, y, width, height = place
    return (x + width // 2, y + height // 2) if width > 0 and height > 0 else None


def _short(text: str, most: int) -> str:
    """A text of one line."""
    line = " ".join(_clean(text[: 4 * most]).split())
    return line if len(line) <= most else line[: most - 1] + "…"


def _clean(text: str) -> str:
    return "".join(sign if sign.isprintable() or sign == "\n" else " " for sign in text)
