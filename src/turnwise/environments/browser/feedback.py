"""What an agent is told of each call: what was done, and what changed or did not (OpenWebRL, A.2).

A pure function of what the page was before and after. Words of a page stand in quotation marks and are cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Blame = Literal["agent", "site", "network"]
"""Whose doing a failed call is. A browser that fails ends the rollout (InfrastructureFailure)."""
MOST = 200
"""Characters of a page's words in a sentence."""


@dataclass(frozen=True, slots=True)
class PageState:
    """What is known of the page in front: of tabs the addresses, of the page where it is scrolled to, what has the
    focus and what stands in it, and numbers that change when its content does. ``focus`` is None for no element."""

    url: str
    tabs: tuple[str, ...]
    tab: int
    scroll: tuple[int, int, int] = (0, 0, 0)
    content: tuple[int, int, int] = (0, 0, 0)
    focus: str | None = None
    editable: bool = False
    value: str | None = None
    title: str = ""


@dataclass(frozen=True, slots=True)
class Unopened:
    """A page that was on its way and did not come."""

    url: str
    why: str


@dataclass(frozen=True, slots=True)
class Happened:
    """What a browser said while a call was done: dialogs that were closed, downloads that were refused, the status of a
    page that was loaded, the page that could not be."""

    dialogs: tuple[str, ...] = ()
    downloads: tuple[str, ...] = ()
    status: int | None = None
    loading: bool = False
    """The new page was not complete when the time for it was over."""
    unopened: Unopened | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """A call and what came of it. ``target`` is what was under the mouse; ``fault`` why it was not done, and whose."""

    tool: str
    arguments: Mapping[str, Any]
    before: PageState
    after: PageState
    target: str | None = None
    fault: tuple[Blame, str] | None = None
    happened: Happened = field(default_factory=Happened)
    readable: bool = True
    """Whether the call had the form of one."""
    meanwhile: Happened = field(default_factory=Happened)
    """What came after the call before had ended, and before this one began."""


def told(done: Done) -> str:
    """The sentence for the agent."""
    came = _came(done.meanwhile, "Before this the page")
    if done.fault is None:
        said = [f"Succeeded: {_what(done)}.", *came, *_changes(done)]
    else:
        came += _came(replace(done.happened, unopened=None), "The page")  # that is what failed
        ended = "." if came and not done.fault[1].endswith((".", "!", "?")) else ""
        said = [f"Failed: `{done.tool}`: {done.fault[1]}{ended}", *came]
    return " ".join(said)


def _what(done: Done) -> str:
    given = done.arguments
    match done.tool:
        case "click" | "hover":
            twice = "double " if given.get("click_type") == "double" else ""
            button = "" if given.get("button", "left") == "left" else f" with the {given['button']} button"
            return f"{twice}`{done.tool}`{button} on {done.target or 'nothing'} at ({given['x']}, {given['y']})"
        case "drag":
            return f"`drag` of {done.target or 'nothing'} to ({given['x2']}, {given['y2']})"
        case "write":
            return f'`write` typed "{_cut(given["text"])}" into {done.after.focus or done.before.focus}'
        case "press_keys":
            return f"`press_keys` {' '.join(given['keys'])}"
        case "scroll":
            return f"`scroll` {given['direction']} by {given['amount']:.0%} of the window"
        case "switch_tab" | "new_tab" | "close_tab":
            return f"`{done.tool}`: tab {done.after.tab} of {len(done.after.tabs)} is in front ({_cut(done.after.url)})"
        case "wait":
            return f"waited {given['seconds']:g} s"
        case "done":
            return "the task is ended"
        case _:
            return f"`{done.tool}`"


def _changes(done: Done) -> list[str]:
    before, after, said = done.before, done.after, []
    moved = after.url != before.url
    if moved and done.tool not in ("switch_tab", "new_tab", "close_tab"):
        said.append(f"The page is now {_cut(after.url)}" + (f" ({_quoted(after.title)})." if after.title else "."))
    if done.happened.status is not None and done.happened.status >= 400:
        said.append(f"The site answered with status {done.happened.status}.")
    if done.happened.loading:
        said.append("It is still loading.")
    if before.tabs and len(after.tabs) > len(before.tabs) and done.tool != "new_tab":
        said.append(f"A new tab opened; it is number {len(after.tabs) - 1}, and switch_tab goes there.")
    if len(after.tabs) < len(before.tabs) and done.tool != "close_tab":
        said.append("A tab was closed.")
    said += _came(done.happened, "The page")
    if done.tool == "write" and after.value is not None and after.value.strip() != done.arguments["text"].strip():
        said.append(f"Note: the value of the field is {_quoted(after.value)}, not what was typed.")
    if done.tool == "scroll" and after.scroll == before.scroll and not moved:
        said.append("Note: nothing moved; it may be at its end.")
    if done.tool in ("click", "hover", "press_keys", "drag", "go_back", "wait") and not said:
        said += _small_changes(before, after)
    return said or _no_effect(done)


def _no_effect(done: Done) -> list[str]:
    """What to say of a call that was done and changed nothing, where only its tool tells that."""
    before, after = done.before, done.after
    match done.tool:
        case "goto_url" if after.url == before.url:
            return ["Note: the address is the one from before; the page was loaded anew."]
        case "switch_tab" if after.tab == before.tab:
            return ["Note: this tab was in front already."]
        case "close_tab" if len(after.tabs) == len(before.tabs):
            return ["Note: it was the only tab, so an empty one took its place."]
        case "write" if before.value is not None and after.value == before.value:
            return ["Note: this stood in the field already."]
        case _:
            return []


def _came(happened: Happened, who: str) -> list[str]:
    """Dialogs and downloads, which are told whether or not the call was done."""
    said = [f"{who} said {_quoted(text)}, which was closed." for text in happened.dialogs]
    said += [f"{who} offered the file {_quoted(name)}, which is not kept." for name in happened.downloads]
    if happened.unopened is not None:
        said.append(f"{who} led to {_cut(happened.unopened.url)}, which did not come: {_cut(happened.unopened.why)}.")
    return said


def _small_changes(before: PageState, after: PageState) -> list[str]:
    """What changed on the page itself, where no page, tab or dialog came."""
    said = []
    if after.focus != before.focus:
        said.append(f"The focus is on {after.focus}." if after.focus else "Nothing has the focus any more.")
    elif after.value != before.value:
        said.append(f"The field has the value {_quoted(after.value or '')}.")
    if after.content != before.content:
        said.append("The content of the page changed.")
    elif after.scroll != before.scroll:
        said.append("The page scrolled.")
    return said or ["Note: nothing on the page changed."]


def _quoted(text: str) -> str:
    """Words of a page, which cannot end their own quotation."""
    return '"' + _cut(text).replace('"', "'") + '"'


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= MOST else text[: MOST - 1] + "…"
