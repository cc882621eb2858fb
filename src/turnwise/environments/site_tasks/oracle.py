"""Plays a task by its moves: finds what each names in the page as an agent sees it, scrolls where it is not in view."""

from __future__ import annotations

from collections.abc import Sequence

from turnwise.environments.base import Action, Call, Observation
from turnwise.environments.browser.miniwob_oracle import SeenElement, elements_in
from turnwise.environments.site_tasks.base import Move

MOST_SCROLLS = 12
"""In a row; what is not found then is not on the page."""
SCROLL = 0.8
"""Of the window's height."""
FEW = 3
"""Elements; a page with fewer is not there yet."""
INNER = (60, 640)
"""Pixels from the top: a field beyond them may be scrolled into view when it gets the focus."""
PRESSED = ("submit", "button", "checkbox", "radio", "image", "reset")
"""Kinds of inputs that nobody writes into."""


class SiteOracle:
    """Gives the calls for moves, as many in one answer as stand in view together; ``lost`` is the move that it could
    not make."""

    def __init__(self, moves: Sequence[Move]) -> None:
        self._left, self._scrolled = list(moves), 0
        self.lost: Move | None = None

    def act(self, observation: Observation) -> Action | None:
        text = observation.text.split("\n\n")[-1]
        seen, calls = list(elements_in(text)), []
        while self._left:
            move = self._left[0]
            if calls and move.what in ("done", "click"):
                break  # what is written may move the page
            made = _made(move, seen, text)
            if made is None:
                break
            calls += made
            self._left.pop(0)
            if move.what in ("click", "go", "done") or _is_at_the_edge(made[0]):
                break
        if calls:
            self._scrolled = 0
            return Action(tuple(calls))
        if not self._left:
            return None
        if self._scrolled >= MOST_SCROLLS or (self._scrolled and ", 0 below" in text.partition("\n<")[0]):
            self.lost = self._left[0]
            return None
        self._scrolled += 1
        if len(seen) < FEW:
            return Action((Call("wait", {"seconds": 2}),))
        return Action((Call("scroll", {"direction": "down", "amount": SCROLL}),))


def _made(move: Move, seen: Sequence[SeenElement], text: str) -> list[Call] | None:
    if move.what == "done":
        return [Call("done", {"answer": move.text})] if move.words.casefold() in text.casefold() else None
    if move.what == "go":
        site = text.partition("Page: ")[2].split("/")
        return [Call("goto_url", {"url": "/".join([*site[:3], move.text.lstrip("/")])})]
    found = _found(move, seen)
    if found is None:
        return None
    if move.what == "click":
        return [found.click()]
    if move.what == "write":
        return [found.click(), Call("write", {"text": move.text})]
    # The keys choose in a list that has the focus; its own window could not be clicked into.
    return [found.click(), Call("press_keys", {"keys": ["Escape"]}), Call("write", {"text": move.text})]


def _found(move: Move, seen: Sequence[SeenElement]) -> SeenElement | None:
    least = 0
    if move.below is not None:
        above = [n for n, each in enumerate(seen) if _plain(each.name) == _plain(move.below)]
        if not above:
            return None
        least = above[0] + 1
    named = [e for e in seen[least:] if e.tag in move.tags and _is_named(e, move) and _takes(e, move.what)]
    return named[move.nth] if move.nth < len(named) else None


def _is_named(element: SeenElement, move: Move) -> bool:
    return not move.words or _plain(move.words) in (_plain(element.name), _plain(element.value))


def _takes(element: SeenElement, what: str) -> bool:
    """Whether an input is one to click on, or one to write into."""
    return element.tag != "input" or (element.kind in PRESSED) == (what == "click")


def _plain(words: str) -> str:
    return " ".join(words.split()).casefold().rstrip(":")


def _is_at_the_edge(call: Call) -> bool:
    y = call.arguments.get("y")
    return not isinstance(y, int) or not INNER[0] <= y <= INNER[1]
