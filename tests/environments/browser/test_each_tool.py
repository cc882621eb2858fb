"""Each of the 13 tools in the real browser: what is told where it works, where it changes nothing, and for each
class of failure whose doing it was. A class that a tool cannot meet says why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.environments.browser import conftest
from tests.environments.browser.conftest import PAGES, needs_browser
from turnwise.bench.web.pages import misbehaving_site
from turnwise.environments.base import Action, Call, InfrastructureFailure, Task
from turnwise.environments.browser import acting
from turnwise.environments.browser.calls import TOOLS
from turnwise.environments.browser.environment import BrowserEnvironment
from turnwise.environments.browser.tab import Tabs

pytestmark = [needs_browser, pytest.mark.slow]

BUTTON = {"x": 60, "y": 115}
"""Of the page `/`; at 240, 110 nothing happens."""
IDLE = {"x": 240, "y": 110}
NONE = "nothing on the page changed"


@dataclass(frozen=True)
class Case:
    """A call at a page, after others, and words of what is told; RESETS stands for the site that cuts off."""

    path: str
    told: str
    given: dict[str, Any]
    before: tuple[tuple[str, dict[str, Any]], ...] = ()


def case(path: str, told: str, *before: tuple[str, dict[str, Any]], **given: Any) -> Case:
    return Case(path, told, given, before)


HANGS = CORNER = ("click", {"x": 10, "y": 10})
SILENT = "the page does not answer within 0.5 s"
CUT_OFF = "which did not come: net::ERR_CONNECTION_RESET."
WITHOUT_ASKING = ("wait", "hover", "write", "scroll")
"""They did what they do, whatever the page does then."""
OPENS_NOTHING = "it opens no page"
NEVER_ENDS = "it asks the page for nothing"
CASES: dict[str, dict[str, Case | str]] = {
    "click": {
        "works": case("/", 'on <button> "Press" at (60, 115). The focus is on', **BUTTON),
        "no effect": case("/", NONE, **IDLE),
        "agent": case("/", "outside of the window", x=5000, y=1),
        "site": case("/hang", "Failed: `click`: the page ", x=10, y=10),
        "network": case("/leads", "Failed: `click`: net::ERR_CONNECTION_RESET", x=10, y=10),
    },
    "hover": {
        "works": case("/over", "The content of the page changed.", **BUTTON),
        "no effect": case("/", NONE, **IDLE),
        "agent": case("/", "outside of the window", x=-1, y=1),
        "site": case("/hang", SILENT, HANGS, x=10, y=10),
        "network": case("/leads-onmouseover", CUT_OFF, **BUTTON),
    },
    "drag": {
        "works": case("/drag", "The focus is on <input> range value", x1=8, y1=15, x2=250, y2=15),
        "no effect": case("/", NONE, x1=600, y1=400, x2=700, y2=400),
        "agent": case("/", "outside of the window", x1=1, y1=1, x2=1, y2=800),
        "site": case("/hang", SILENT, HANGS, x1=1, y1=1, x2=9, y2=9),
        "network": case("/leads-onmouseup", "`drag`: net::ERR_CONNECTION_RESET", x1=60, y1=115, x2=62, y2=115),
    },
    "write": {
        "works": case("/field", 'typed "red" into <input> text value "red".', text="red"),
        "no effect": case("/field", "this stood in the field already", ("write", {"text": "red"}), text="red"),
        "agent": case("/second", "no field has the focus", text="x"),
        "site": case("/hang", SILENT, HANGS, text="x"),
        "network": case("/leads-oninput", CUT_OFF, ("click", BUTTON), text="x"),
    },
    "press_keys": {
        "works": case("/field", 'The focus is on <input> text value "hi".', keys=["h", "i"]),
        "no effect": case("/second", NONE, keys=["Shift"]),
        "agent": case("/field", "Unknown key", keys=["Foo"]),
        "site": case("/hang", SILENT, HANGS, keys=["a"]),
        "network": case("/leads", "net::ERR_CONNECTION_RESET", ("press_keys", {"keys": ["Tab"]}), keys=["Enter"]),
    },
    "scroll": {
        "works": case("/long", "`scroll` down by 50% of the window.", direction="down"),
        "no effect": case("/long", "nothing moved", direction="left"),
        "agent": case("/long", "one of up, down, left, right", direction="sideways"),
        "site": case("/hang", SILENT, HANGS, direction="down"),
        "network": case("/leads-onscroll", CUT_OFF, direction="down"),
    },
    "goto_url": {
        "works": case("/", 'The page is now SITE/second ("Second").', url="SITE/second"),
        "no effect": case("/second", "the address is the one from before", url="SITE/second"),
        "agent": case("/", "this address is none that the task allows", url="http://127.0.0.1:1/"),
        "site": case("/", "ERR_TOO_MANY_REDIRECTS", url="SITE/loop"),
        "network": case("/", "net::ERR_CONNECTION_RESET", url="http://RESETS/reset"),
    },
    "go_back": {
        "works": case("/", 'The page is now SITE/ ("Start").', ("goto_url", {"url": "SITE/second"})),
        "no effect": "where there is no page to go to it failed, and there is no other way to change nothing",
        "agent": case(
            "/", "there is no page before this one", ("goto_url", {"url": "SITE/"}), ("go_back", {}), ("go_back", {})
        ),
        "site": case("/once?late", "the page took too long", ("goto_url", {"url": "SITE/second"})),
        "network": case("/once?cut", "net::ERR_", ("goto_url", {"url": "SITE/second"})),
    },
    "wait": {
        "works": case("/ticks", "waited 1 s. The content of the page changed.", seconds=1),
        "no effect": case("/", NONE, seconds=0.1),
        "agent": case("/", "is a number", seconds="long"),
        "site": case("/hang", SILENT, HANGS, seconds=0.1),
        "network": case("/goes", CUT_OFF, CORNER, seconds=4),
    },
    "new_tab": {
        "works": case("/", "tab 1 of 2 is in front (about:blank)"),
        "no effect": "it opens a tab, or failed",
        "agent": case("/", "there are 10 tabs; close one first", *[("new_tab", {})] * 9),
        "site": OPENS_NOTHING,
        "network": OPENS_NOTHING,
    },
    "switch_tab": {
        "works": case("/", "tab 0 of 2 is in front (SITE/)", ("new_tab", {}), index=0),
        "no effect": case("/", "this tab was in front already", index=0),
        "agent": case("/", "there are tabs 0 to 0", index=7),
        "site": case("/hang", SILENT, HANGS, ("new_tab", {}), index=0),
        "network": OPENS_NOTHING,
    },
    "close_tab": {
        "works": case("/", "tab 0 of 1 is in front (SITE/)", ("new_tab", {})),
        "no effect": case("/", "it was the only tab, so an empty one took its place"),
        "agent": case("/", "close_tab takes no arguments, not 'index'", index=0),
        "site": NEVER_ENDS,
        "network": OPENS_NOTHING,
    },
    "done": {
        "works": case("/", "the task is ended", answer="42"),
        "no effect": "it ends the task",
        "agent": case("/", "done asks for answer"),
        "site": NEVER_ENDS,
        "network": OPENS_NOTHING,
    },
}
MET = [(tool, what) for tool, row in CASES.items() for what, found in row.items() if isinstance(found, Case)]


@pytest.fixture(scope="module")
def resets() -> Iterator[str]:
    with misbehaving_site() as host:
        yield host


@pytest.fixture
def begun(
    browser: BrowserEnvironment, site: str, resets: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[BrowserEnvironment, Any]]:
    """A browser, and what begins at a page and does a call."""
    link = f"<a {conftest.CORNER} href='http://{resets}/reset'>Go</a>"
    monkeypatch.setitem(PAGES, "/leads", link)
    later = f"setTimeout(() => location = 'http://{resets}/reset', 1500)"
    monkeypatch.setitem(PAGES, "/goes", f'<button {conftest.CORNER} onclick="{later}">Go')
    over = f"<div {conftest.PLACE}20px' onmouseover=\"this.textContent = 'Now'\">Off"
    monkeypatch.setitem(PAGES, "/over", over)
    for event in ("onmouseover", "onmouseup", "oninput"):
        leads = f"<input {conftest.PLACE}20px' value=1 {event}=\"location = 'http://{resets}/reset'\">"
        monkeypatch.setitem(PAGES, f"/leads-{event}", leads)
    monkeypatch.setitem(
        PAGES, "/leads-onscroll", f"<body style='height:3000px' onscroll=\"location = 'http://{resets}/reset'\">Off"
    )
    monkeypatch.setitem(PAGES, "/ticks", "<p id=p>0</p><script>setInterval(() => p.textContent++, 100)</script>")
    monkeypatch.setitem(PAGES, "/to-cut", f"<a {conftest.CORNER} href='/cut'>Go</a>")
    conftest._Site.given.clear()

    def do(name: str, given: dict[str, Any]) -> str:
        given = {key: filled(value) for key, value in given.items()}
        return browser.step(Action((Call(name, given),)))[0].results[0]

    def filled(value: Any) -> Any:
        return value.replace("SITE", site).replace("RESETS", resets) if isinstance(value, str) else value

    def begin(path: str) -> Any:
        task = {"url": site + path, "answer": "42", "hosts": [site.removeprefix("http://"), resets]}
        browser.reset(Task("t", "web", "Do it.", task))
        return do, filled

    yield browser, begin


def test_no_tool_and_no_class_is_left_out() -> None:
    assert set(CASES) == set(TOOLS)
    assert all(set(row) == {"works", "no effect", "agent", "site", "network"} for row in CASES.values())


@pytest.mark.parametrize(("tool", "what"), MET)
def test_what_is_told_and_whose_fault_it_was(
    tool: str, what: str, begun: tuple[BrowserEnvironment, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    browser, begin = begun
    found = CASES[tool][what]
    assert isinstance(found, Case)
    do, filled = begin(found.path)
    if what == "site":  # nobody has to wait for a page that will not answer
        monkeypatch.setattr("turnwise.environments.browser.tab.SCRIPT_S", 0.5)
        monkeypatch.setattr("turnwise.environments.browser.acting.ACT_S", 1.0)
        monkeypatch.setattr("turnwise.environments.browser.acting.LOAD_S", 1.5)
    for name, given in found.before:
        do(name, given)
    before = dict(browser._faults)
    told = do(tool, found.given)
    assert filled(found.told) in told
    did = what in ("works", "no effect") or (tool in WITHOUT_ASKING and what == "network")
    assert told.startswith("Succeeded: " if did else "Failed: ")
    new = {whose: count - before.get(whose, 0) for whose, count in browser._faults.items()}
    blamed = {} if what in ("works", "no effect") else {what: 1}
    assert {whose: count for whose, count in new.items() if count} == blamed


@pytest.mark.parametrize("tool", TOOLS)
def test_a_page_that_crashes_in_the_middle_of_a_call_ends_the_rollout_whatever_it_was(
    tool: str, begun: tuple[BrowserEnvironment, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, begin = begun
    works = CASES[tool]["works"]
    assert isinstance(works, Case)
    do, _ = begin(works.path)
    for name, given in works.before:
        do(name, given)
    doing = acting._act

    async def crashing(tabs: Tabs, *given: Any) -> None:
        await doing(tabs, *given)
        await _crash(tabs)

    monkeypatch.setattr(acting, "_act", crashing)
    with pytest.raises(InfrastructureFailure, match="the browser"):
        do(tool, works.given)


async def _crash(tabs: Tabs) -> None:
    """The process of a page ends, as when it has no memory left."""
    if tabs.front.is_closed():
        tabs.front = tabs.pages[0]
    if tabs.front not in tabs._sessions:
        await tabs._session()
    tabs._later(tabs._sessions[tabs.front].send("Page.crash"))  # nobody answers it
    while not tabs._crashed:  # noqa: ASYNC110
        await asyncio.sleep(0.02)


def test_a_page_whose_connection_is_cut_off_is_asked_for_again(begun: tuple[BrowserEnvironment, Any]) -> None:
    browser, begin = begun
    do, _ = begin("/")
    told = do("goto_url", {"url": "SITE/twice"})
    assert told.startswith("Succeeded") and '/twice ("Here").' in told
    assert browser.score().details["faults"] == {}, "nobody's fault: it came"


def test_after_a_failed_address_another_one_is_tried_as_often(begun: tuple[BrowserEnvironment, Any]) -> None:
    browser, begin = begun
    do, filled = begin("/")
    assert do("goto_url", {"url": "http://RESETS/reset"}).startswith("Failed")
    assert '/twice?2 ("Here").' in do("goto_url", {"url": "SITE/twice?2"})
    clicks = Action((Call("click", {"x": 10, "y": 10}), Call("goto_url", {"url": filled("SITE/second")})))
    do("goto_url", {"url": "SITE/leads"})
    first, second = browser.step(clicks)[0].results
    assert first.startswith("Failed") and '/second ("Second").' in second, second
    assert browser.score().details["faults"] == {"network": 2}


def test_what_fails_behind_the_page_in_front_is_not_its_fault(begun: tuple[BrowserEnvironment, Any]) -> None:
    browser, begin = begun
    do, _ = begin("/goes")
    do("click", {"x": 10, "y": 10})  # this page goes elsewhere while another one is in front
    do("new_tab", {})
    do("goto_url", {"url": "SITE/"})
    do("wait", {"seconds": 3})
    assert do("click", BUTTON).startswith("Succeeded: `click`")
    assert browser.score().details["faults"] == {}


def test_an_answer_counts_whatever_the_page_does_meanwhile(
    begun: tuple[BrowserEnvironment, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    browser, begin = begun
    do, _ = begin("/goes")
    do("click", {"x": 10, "y": 10})
    monkeypatch.setattr(acting, "SETTLE_S", 3.0)  # long enough for the page to fail in the middle of the call
    told = do("done", {"answer": "42"})
    assert told.startswith("Succeeded: the task is ended.") and "The page led to http://" in told
    assert browser.score().reward == 1.0


def test_a_page_that_was_cut_off_in_the_middle_did_come(
    begun: tuple[BrowserEnvironment, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    browser, begin = begun
    do, _ = begin("/to-cut")
    told = do("click", {"x": 10, "y": 10})
    assert told.startswith("Succeeded") and "The page is now" in told and browser.score().details["faults"] == {}
