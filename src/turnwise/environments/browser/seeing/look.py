"""What an agent is shown of a page: as text, as a picture of the window, as one with numbers, or as text and picture.

The address, the size of the window, the tabs and how far it is scrolled are told in words whatever the view is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from turnwise.environments.browser.feedback import PageState
from turnwise.environments.browser.seeing.marks import Mark, drawn, marks_in
from turnwise.environments.browser.tab import PageHangs, Tabs
from turnwise.environments.browser.web_task import View


@dataclass(frozen=True, slots=True)
class PageLook:
    """What is told, the picture that goes with it, and the elements that are numbered on it."""

    text: str
    pictures: tuple[bytes, ...] = ()
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True, slots=True)
class TakenPage:
    """What was taken of a page: its state, what was read of it, and a picture. ``fault``: why something is missing."""

    state: PageState | None = None
    seen: dict[str, Any] | None = None
    picture: bytes | None = None
    fault: str | None = None


async def taken(tabs: Tabs, view: View) -> TakenPage:
    """Look at the page in front. A page that does not answer, or makes no picture, is no failure: it is told."""
    state, seen = None, None
    try:
        state, seen = await tabs.state(), await tabs.seen()
        return TakenPage(state, seen, None if view == "text" else await tabs.picture())
    except PageHangs as e:
        return TakenPage(state, seen, None, str(e))


def shown(page: TakenPage, view: View, window: tuple[int, int]) -> PageLook:
    """The page as this view has it. Takes CPU time where numbers are drawn."""
    if page.state is None or page.seen is None:
        return PageLook(f"({page.fault})")
    lines, pictures, marks = _head(page.state, page.seen, window), (), ()
    if page.picture is None:
        if page.fault is not None:
            lines.append(f"(There is no picture of it: {page.fault})")
        view = "text"  # what stands there is told all the same
    else:
        marks = marks_in(page.seen) if view == "marks" else ()
        pictures = (drawn(page.picture, marks),)
    if view in ("text", "both"):
        lines += [str(line) for line in page.seen.get("lines", [])]
    lines += map(str, marks)
    if page.seen.get("cut") and view != "screenshot":
        lines.append(f"({page.seen['cut']} more are left out)")
    return PageLook("\n".join(lines), pictures, marks)


def _head(state: PageState, seen: dict[str, Any], window: Sequence[int]) -> list[str]:
    lines = [f'Page: {state.url[:300]} "{seen.get("title", "")}", window {window[0]} by {window[1]}']
    if len(state.tabs) > 1:
        lines.append(f"Tab {state.tab} of {len(state.tabs)}: " + ", ".join(url[:80] for url in state.tabs))
    if seen.get("above") or seen.get("below"):
        lines.append(f"Scrolled: {seen['above']} pixels above, {seen['below']} below")
    return lines
